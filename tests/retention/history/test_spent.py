"""Expiry of records of the run history: a record needed by a later one is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.run_names import RunName
from retention.history.kinds import record_of
from retention.history.record import ABANDONED, UNKNOWN, RunRecord
from retention.history.runs import History
from retention.history.spent import spent_runs

CUTOFF = 1_000
YOUNG = 5_000


def record(started_ns: int, **fields: Any) -> RunRecord:
    """The outcome of a pass with default fields."""
    whole = {
        "run": RunName(0, started_ns).written(),
        "kind": "apply",
        "status": "done",
        "as_of_ns": started_ns,
        "next_seq": {"0": started_ns},
        "floor": {"0": started_ns},
        "latest_as_of_ns": started_ns,
        "policy": {},
    } | fields
    return record_of({name: value for name, value in whole.items() if value is not None})


PLAIN = {"next_seq": None, "floor": None, "latest_as_of_ns": None, "policy": None}
SPENT = {"digest": "ab" * 32, "stream": "ORDERS", "run": "a"}
CASES = {
    "an old pass behind a new one": ([record(YOUNG), record(1)], [1]),
    "the newest": ([record(2)], []),
    "a young one": ([record(YOUNG), record(CUTOFF)], []),
    "one that nothing newer speaks for": (
        [record(YOUNG, kind="undo", undoes="a", **PLAIN), record(1)],
        [],
    ),
    "one that only an abandoned run speaks for": (
        [record(YOUNG, status=ABANDONED), record(1)],
        [],
    ),
    "a settled pass does not carry the instant": (
        [record(YOUNG, latest_as_of_ns=None), record(1)],
        [],
    ),
    "of another epoch": ([record(YOUNG, epoch=7), record(1)], []),
    "of an epoch of which only a young one speaks": (
        [record(YOUNG + 1), record(YOUNG, epoch=7), record(1, epoch=7)],
        [],
    ),
    "of unknown outcome": ([record(YOUNG), record(1, status=UNKNOWN)], []),
    "a repair": ([record(YOUNG), record(1, kind="repair", repair="clock")], []),
    "the end of an epoch": ([record(YOUNG), record(1, ends_epoch=0)], []),
    "one that spent an approval": ([record(YOUNG), record(1, approval=SPENT)], []),
    "an abandoned one": ([record(YOUNG), record(1, status=ABANDONED)], [1]),
    "several": ([record(YOUNG), record(3), record(2, **PLAIN), record(1)], [1, 2, 3]),
}


@pytest.mark.parametrize(("outcomes", "expected"), CASES.values(), ids=CASES)
def test_a_record_goes_when_nothing_rests_on_it(
    outcomes: list[RunRecord], expected: list[int]
) -> None:
    by_run = {one.run: one for one in outcomes}
    spent = spent_runs(by_run, by_run.get, set(), CUTOFF)
    assert [by_run[run].as_of_ns for run in spent] == expected
    assert spent_runs(by_run, by_run.get, set(by_run), CUTOFF) == []


def test_young_records_are_not_read_once_newer_ones_have_said_everything() -> None:
    newest = [record(YOUNG + 1_000, policy=None), record(YOUNG + 999)]
    young = [record(YOUNG + number) for number in range(90, 0, -1)]
    old = [record(number) for number in range(9, 0, -1)]
    by_run = {one.run: one for one in [*newest, *young, *old]}
    read: list[str] = []

    def reading(run: str) -> RunRecord | None:
        read.append(run)
        return by_run[run]

    spent = spent_runs(by_run, reading, set(), CUTOFF)
    assert read == [one.run for one in [*newest, *old]]
    assert spent == [one.run for one in reversed(old)]


KINDS = st.sampled_from(["apply", "undo", "reclaim", "purge", "repair"])
MORE = {"undo": {"undoes": "a"}, "repair": {"repair": "foreign"}}
STATUSES = st.sampled_from(["done", "done", ABANDONED, UNKNOWN])


@st.composite
def histories(draw: st.DrawFn) -> list[RunRecord]:
    """Outcomes of runs, oldest first."""
    outcomes: list[RunRecord] = []
    for number in range(draw(st.integers(1, 6))):
        kind = draw(KINDS)
        passed = kind == "apply"
        outcomes.append(
            record(
                draw(st.sampled_from([number + 1, YOUNG + number])) + 10_000 * number,
                kind=kind,
                status=draw(STATUSES),
                floor=None,
                next_seq={"0": draw(st.integers(1, 50))} if passed else None,
                as_of_ns=draw(st.integers(1, 50)),
                latest_as_of_ns=draw(st.integers(1, 50))
                if passed and draw(st.booleans())
                else None,
                policy={"number": number} if passed else None,
                **MORE.get(kind, {}),
            )
        )
    return outcomes


@given(outcomes=histories(), cutoff_ns=st.one_of(st.just(10**9), st.integers(0, 60_000)))
def test_the_history_answers_the_same_without_them(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[RunRecord], cutoff_ns: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("runs")
    history = History(str(folder))
    for one in outcomes:
        history.finish(one)

    def answers() -> Iterator[object]:
        yield history.next_seqs(0)
        yield history.last_as_of_ns()
        yield history.last_policy()
        yield history.last_epoch()
        yield history.name_run(1)[:20]

    before = list(answers())
    history.forget(spent_runs(history.finished(), history.done, set(), cutoff_ns))
    assert list(answers()) == before
