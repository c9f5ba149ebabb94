"""Deletion of dead files: every reason to keep a file that the history calls removed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.reclaim import (
    DeadFile,
    Evidence,
    Hindrance,
    LogWindow,
    Reason,
    decide_dead,
    hindrance,
    latest_deaths,
    log_window,
)

CUTOFF = 1_000
DEAD = DeadFile("a b.parquet", 10, Reason.REMOVED, 100)
SOUND = Evidence(CUTOFF, live=(), recent=(), unfinished=())

CASES = {
    "removed before the grace": (DEAD, SOUND, None),
    "staged and never committed": (replace(DEAD, reason=Reason.ABANDONED), SOUND, None),
    "back by undo, or by a RESTORE": (DEAD, replace(SOUND, live={DEAD.path}), Hindrance.LIVE),
    "a vector DELETE logs it as removed": (DEAD, replace(SOUND, live={DEAD.path}), Hindrance.LIVE),
    "an undo under way names it": (
        DEAD,
        replace(SOUND, unfinished={DEAD.path}),
        Hindrance.UNFINISHED,
    ),
    "stamped by a clock that was behind": (
        replace(DEAD, since_ns=CUTOFF + 1),
        SOUND,
        Hindrance.GRACE,
    ),
    "removed at the very cutoff": (replace(DEAD, since_ns=CUTOFF), SOUND, Hindrance.GRACE),
    "a young version has it": (DEAD, replace(SOUND, recent={DEAD.path}), Hindrance.RECENT),
    "log cleaned up too early": (DEAD, replace(SOUND, is_whole=False), Hindrance.GAP),
    "others are live": (DEAD, replace(SOUND, live={"b"}, recent={"c"}, unfinished={"d"}), None),
}


@pytest.mark.parametrize(("file", "evidence", "expected"), CASES.values(), ids=CASES)
def test_a_file_stays_for_a_reason(
    file: DeadFile, evidence: Evidence, expected: Hindrance | None
) -> None:
    assert hindrance(file, evidence) == expected


def test_of_two_removals_the_latest_counts() -> None:
    again = replace(DEAD, since_ns=CUTOFF + 5)
    assert latest_deaths([again, DEAD]) == latest_deaths([DEAD, again]) == [again]
    assert decide_dead([DEAD, again], SOUND).to_delete == ()


def test_a_file_that_a_record_calls_abandoned_is_claimed_as_such() -> None:
    staged = replace(DEAD, reason=Reason.ABANDONED, since_ns=50)
    assert latest_deaths([DEAD, staged]) == [replace(DEAD, reason=Reason.ABANDONED)]


WINDOWS = {
    "young table": ({0: 5_000, 1: 6_000}, {}, LogWindow((0, 1), is_whole=True)),
    "nothing young": ({0: 10, 1: 20}, {}, LogWindow((), is_whole=True)),
    "some young": ({0: 10, 1: 20, 2: 2_000}, {}, LogWindow((2,), is_whole=True)),
    "cleaned up behind a checkpoint": (
        {3: 20, 4: 2_000},
        {3: 30},
        LogWindow((4,), is_whole=True),
    ),
    "only the checkpoint is left before": ({4: 2_000}, {3: 30}, LogWindow((4,), is_whole=True)),
    "the checkpoint is young": ({4: 2_000}, {3: 1_500}, LogWindow((4,), is_whole=False)),
    "cleaned up too early": ({4: 2_000}, {}, LogWindow((4,), is_whole=False)),
    "a hole": ({0: 10, 1: 1_500, 3: 2_000}, {}, LogWindow((1, 3), is_whole=False)),
    "the storage's clock was set back": (
        {0: 10, 1: 1_500, 2: 20, 3: 2_000},
        {},
        LogWindow((1, 2, 3), is_whole=True),
    ),
    "only an old checkpoint is left": ({}, {3: 30}, LogWindow((), is_whole=True)),
    "only a young checkpoint is left": ({}, {3: 1_500}, LogWindow((), is_whole=False)),
    "entries behind the checkpoint's are lost": (
        {2: 10},
        {4: 1_500},
        LogWindow((), is_whole=False),
    ),
    "no log": ({}, {}, LogWindow((), is_whole=True)),
}


@pytest.mark.parametrize(("entries", "states", "expected"), WINDOWS.values(), ids=WINDOWS)
def test_a_window_is_whole_or_says_so(
    entries: dict[int, int], states: dict[int, int], expected: LogWindow
) -> None:
    assert log_window(entries, states, CUTOFF) == expected


PATHS = st.sampled_from("abcd")
DEATHS = st.builds(DeadFile, PATHS, st.just(1), st.sampled_from(Reason), st.integers(0, 2 * CUTOFF))


@given(
    st.lists(DEATHS),
    st.sets(PATHS),
    st.sets(PATHS),
    st.sets(PATHS),
    st.booleans(),
)
def test_nothing_goes_that_anything_speaks_for(
    deaths: list[DeadFile], live: set[str], recent: set[str], unfinished: set[str], whole: bool
) -> None:
    evidence = Evidence(CUTOFF, live, recent, unfinished, whole)
    judged = decide_dead(deaths, evidence)
    going = {file.path for file in judged.to_delete}
    assert not going & (live | recent | unfinished)
    assert all(death.since_ns < CUTOFF for death in deaths if death.path in going)
    assert whole or not going
    staying = {file.path for files in judged.kept.values() for file in files}
    assert going | staying == {death.path for death in deaths}
    assert not going & staying
