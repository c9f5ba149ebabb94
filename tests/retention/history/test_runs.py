from __future__ import annotations

from pathlib import Path

import pytest

from retention.errors import DamagedError
from retention.history.runs import History

INSTANT = 1_700_000_000_123_456_789


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path))


def test_a_run_is_named_by_the_instant_it_started(history: History) -> None:
    assert history.name_run(INSTANT).startswith("20231114T221320.123456789Z-")


def test_names_rise_although_the_clock_was_set_back(history: History) -> None:
    first = history.name_run(INSTANT)
    history.begin(first, {})
    second = history.name_run(INSTANT - 10**12)
    assert second.startswith("20231114T221320.123456790Z-")
    assert second > first


def test_what_began_without_an_outcome_is_unfinished(history: History) -> None:
    history.begin("a", {"kind": "apply"})
    history.begin("b", {"kind": "apply"})
    history.finish("a", {"kind": "apply", "status": "done"})
    assert history.unfinished() == ["b"]


def test_the_latest_instant_outlives_a_rewind(history: History) -> None:
    for run, as_of_ns, latest in (("a", 5, 5), ("b", 3, 5)):
        history.finish(
            run,
            {"kind": "apply", "status": "done", "as_of_ns": as_of_ns, "latest_as_of_ns": latest},
        )
    assert history.last_as_of_ns() == 5


def test_a_settled_run_counts_by_its_own_instant(history: History) -> None:
    history.finish("a", {"kind": "apply", "status": "done", "as_of_ns": 5, "latest_as_of_ns": 5})
    history.finish("b", {"kind": "apply", "status": "done", "as_of_ns": 9, "settled": True})
    history.finish("c", {"kind": "apply", "status": "abandoned", "as_of_ns": 99})
    assert history.last_as_of_ns() == 9


def test_a_damaged_record_is_named(history: History, tmp_path: Path) -> None:
    (tmp_path / "a.done.json").write_text("{")
    with pytest.raises(DamagedError, match=r"a\.done\.json"):
        list(history.outcomes())


def test_the_last_policy_is_that_of_the_newest_run_that_was_carried_out(history: History) -> None:
    assert history.last_policy() is None
    history.finish(
        "a", {"kind": "apply", "as_of_ns": 1, "status": "done", "policy": {"max_msgs": 1}}
    )
    history.finish("b", {"kind": "undo", "as_of_ns": 1, "status": "done"})
    history.finish(
        "c", {"kind": "apply", "as_of_ns": 1, "status": "abandoned", "policy": {"max_msgs": 2}}
    )
    assert history.last_policy() == {"max_msgs": 1}


def test_each_outcome_is_read_once_for_the_next_sequences(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every publish asks for them, on a storage where a read may take its time."""
    record = {"kind": "apply", "status": "done", "as_of_ns": 1, "next_seq": {"0": 7}}
    for second in (1, 2, 3):
        history.finish(history.name_run(second * 10**9), record)
    read: list[str] = []
    of_history = History._read

    def counted(of: History, name: str) -> dict[str, object] | None:
        read.append(name)
        return of_history(of, name)

    monkeypatch.setattr(History, "_read", counted)
    assert history.next_seqs(0) == {0: 7}
    assert len(read) == 1
    assert history.next_seqs(4) == {}


def test_the_next_sequences_go_on_in_the_epoch_of_a_repair(history: History) -> None:
    done = {"status": "done", "as_of_ns": 1}
    begun = {"kind": "apply", **done, "next_seq": {"0": 7}}
    repaired = {"kind": "repair", **done, "epoch": 9, "ends_epoch": 0, "next_seq": {"0": 5}}
    for second, record in enumerate((begun, repaired), start=1):
        history.finish(history.name_run(second * 10**9), record)
    assert history.next_seqs(9) == history.next_seqs(0) == {0: 5}
    assert History(history.directory + "-none").next_seqs(3) == {}
