from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retention.errors import DamagedError
from retention.history.runs import History
from tests.support.run_records import counted_reads, run_record

INSTANT = 1_700_000_000_123_456_789


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path))


def test_a_run_is_named_by_the_instant_it_started(history: History) -> None:
    assert history.name_run(INSTANT).startswith("20231114T221320.123456789Z-")


def test_names_rise_although_the_clock_was_set_back(history: History) -> None:
    first = history.name_run(INSTANT)
    history.begin(run_record(first))
    second = history.name_run(INSTANT - 10**12)
    assert second.startswith("20231114T221320.123456790Z-")
    assert second > first


def test_what_began_without_an_outcome_is_unfinished(history: History) -> None:
    history.begin(run_record("a"))
    history.begin(run_record("b"))
    history.finish(run_record("a", status="done"))
    assert history.unfinished() == ["b"]


def test_the_latest_instant_outlives_a_rewind(history: History) -> None:
    for run, as_of_ns, latest in (("a", 5, 5), ("b", 3, 5)):
        history.finish(run_record(run, status="done", as_of_ns=as_of_ns, latest_as_of_ns=latest))
    assert history.last_as_of_ns() == 5


def test_a_settled_run_counts_by_its_own_instant(history: History) -> None:
    history.finish(run_record("a", status="done", as_of_ns=5, latest_as_of_ns=5))
    history.finish(run_record("b", status="done", as_of_ns=9, settled=True))
    history.finish(run_record("c", status="abandoned", as_of_ns=99))
    assert history.last_as_of_ns() == 9


def test_a_damaged_record_is_named(history: History, tmp_path: Path) -> None:
    (tmp_path / "a.done.json").write_text("{")
    with pytest.raises(DamagedError, match=r"a\.done\.json"):
        list(history.outcomes())


def test_the_last_policy_is_that_of_the_newest_run_that_was_carried_out(history: History) -> None:
    assert history.last_policy() is None
    history.finish(run_record("a", as_of_ns=1, status="done", policy={"max_msgs": 1}))
    history.finish(run_record("b", kind="undo", undoes="a", as_of_ns=1, status="done"))
    history.finish(run_record("c", as_of_ns=1, status="abandoned", policy={"max_msgs": 2}))
    assert history.last_policy() == {"max_msgs": 1}


def test_each_outcome_is_read_once_for_the_next_sequences(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every publish needs them, possibly on slow storage."""
    for second in (1, 2, 3):
        run = history.name_run(second * 10**9)
        history.finish(run_record(run, status="done", next_seq={"0": 7}))
    read = counted_reads(monkeypatch)
    assert history.next_seqs(0) == {0: 7}
    assert len(read) == 1
    assert history.next_seqs(4) == {}


def test_the_next_sequences_go_on_in_the_epoch_of_a_repair(history: History) -> None:
    passed: dict[str, Any] = {"next_seq": {"0": 7}}
    epochs = {"epoch": 9, "ends_epoch": 0}
    repaired = {"kind": "repair", "repair": "sequences", **epochs, "next_seq": {"0": 5}}
    for second, fields in enumerate((passed, repaired), start=1):
        run = history.name_run(second * 10**9)
        history.finish(run_record(run, status="done", **fields))
    assert history.next_seqs(9) == history.next_seqs(0) == {0: 5}
    assert History(history.directory + "-none").next_seqs(3) == {}
