"""Leftovers of killed processes are deleted after a noted grace; a merely paused process loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.apply.orphans import orphans
from retention.apply.reclaim.leftovers import (
    LEFTOVERS,
    UNMARKED,
    find_leftovers,
    reclaim_leftovers,
)
from retention.apply.reclaim.run import reclaim_now
from retention.core.reclaim import Hindrance
from retention.storage.crash_points import Step, watched_by
from tests.support.laying import held
from tests.support.reclaiming import TICK_S, again, data_files, emptied, leave

pytestmark = pytest.mark.parametrize("format_", ["delta", "parquet"])
LINE = b'{"subject": "a", "data": "x"}'


def at(step: Step, act: Callable[[], None]) -> Callable[[Step], None]:
    """A watcher that acts at the first occurrence of a step."""
    acted: list[Step] = []

    def watch(reached: Step) -> None:
        if reached is step and not acted:
            acted.append(step)
            act()

    return watch


class KilledError(Exception):
    """The kill of a process."""


def be_killed() -> None:
    raise KilledError


def test_leftovers_are_noted_and_go_when_they_were_for_the_grace(
    tmp_path: Path, format_: str
) -> None:
    opened = leave(tmp_path, format_)
    before = held(open_warehouse(tmp_path))
    assert len(data_files(tmp_path)) == 3
    assert find_leftovers(opened).going == {}
    noted = reclaim_leftovers(opened)
    assert noted.going == {}
    assert noted.staying[Hindrance.GRACE].files == 2
    assert len(data_files(tmp_path)) == 3
    time.sleep(TICK_S)
    assert find_leftovers(opened).going[LEFTOVERS].files == 2
    assert reclaim_leftovers(opened).going[LEFTOVERS].files == 2
    assert orphans(again(tmp_path)) == []
    assert len(data_files(tmp_path)) == 2
    assert held(open_warehouse(tmp_path)).equals(before)


def test_a_publish_that_stood_still_writes_its_rows_again(tmp_path: Path, format_: str) -> None:
    emptied(tmp_path, format_)
    stream = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")
    claimed = {"delta": Step.DELTA_COMMITTED, "parquet": Step.MOVES_NOTED}[format_]

    def reclaim_meanwhile() -> None:
        other = again(tmp_path)
        for _ in range(2):
            # Killed after its claim: the files still exist, and may be deleted at any time.
            with watched_by(at(claimed, be_killed)), suppress(KilledError):
                reclaim_leftovers(other)
            time.sleep(TICK_S)

    with watched_by(at(Step.DATA_COUNTED, reclaim_meanwhile)):
        stream.publish([LINE, LINE])
    assert held(open_warehouse(tmp_path)).num_rows == 17
    time.sleep(TICK_S)
    for _ in range(3):
        reclaim_leftovers(again(tmp_path))
        reclaim_now(again(tmp_path))
        time.sleep(TICK_S)
    assert held(open_warehouse(tmp_path)).num_rows == 17
    assert orphans(again(tmp_path)) == []


def test_a_file_of_which_nothing_says_that_it_is_ours_stays(tmp_path: Path, format_: str) -> None:
    if format_ == "parquet":
        pytest.skip("what lies in staging is ours")
    opened = leave(tmp_path, format_)
    [leftover] = [one for one in orphans(opened) if "no commit" in one.what]
    path = leftover.location.removeprefix(f"{opened.root}/messages/")
    Path(opened.root, "_retention", "subjects", path).unlink()
    for _ in range(2):
        report = reclaim_leftovers(again(tmp_path))
        time.sleep(TICK_S)
    assert report.staying[UNMARKED].files == 1
    assert Path(leftover.location).exists()
