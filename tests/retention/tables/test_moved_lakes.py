"""Killed runs over directories whose lake is elsewhere by the next run, not mounted, or hard to read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from retention.core.units import DAY
from retention.errors import StorageError, UsageError
from retention.history.record import ABANDONED, UNKNOWN
from retention.storage import files
from retention.storage.crash_points import Step, watched_by
from retention.tables.apply import apply_plan
from retention.tables.reclaim import reclaim_table
from retention.tables.recorded import settle_interrupted
from retention.tables.undo import undo_run
from tests.retention.tables.directories import Directory, directory
from tests.retention.tables.tables import NOW
from tests.retention.tables.test_directories import ALL


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def killed(tmp_path: Path) -> Directory:
    """A directory whose pass was killed after the first of two moves."""
    events = directory(tmp_path)
    events.write(ALL[3], [40])
    killed_at(Step.FILE_MOVED, lambda: apply_plan(events.opened, events.plan()))
    assert (events.files(), events.aside()) == (ALL[1:], ["a.parquet.removed"])
    return events


def killed_at(step: Step, act: Callable[[], object]) -> None:
    def kill(reached: Step) -> None:
        if reached is step:
            raise Killed

    with watched_by(kill), pytest.raises(Killed):
        act()


def statuses(events: Directory) -> list[str]:
    return [record.status for record in events.opened.history.outcomes()]


def elsewhere(events: Directory) -> Directory:
    """The directory after its whole lake was moved."""
    place = events.root.parent.rename(events.root.parent.with_name("moved"))
    return Directory(replace(events.opened, location=str(place / events.root.name)))


def test_a_directory_that_is_not_mounted_is_settled_once_it_is(killed: Directory) -> None:
    lake = killed.root.parent
    away = lake.rename(lake.with_name("away"))
    with pytest.raises(UsageError, match="there is no directory"):
        settle_interrupted(killed.opened)
    assert statuses(killed) == []
    away.rename(lake)
    settle_interrupted(killed.opened)
    assert (statuses(killed), killed.files(), killed.aside()) == ([ABANDONED], ALL, [])


def test_an_empty_directory_in_its_place_does_not_tell_where_the_files_are(
    killed: Directory,
) -> None:
    lake = killed.root.parent
    lake.rename(lake.with_name("away"))
    killed.root.mkdir(parents=True)
    settle_interrupted(killed.opened)
    assert statuses(killed) == [UNKNOWN]


def test_files_aside_follow_a_lake_that_was_moved(killed: Directory) -> None:
    moved = elsewhere(killed)
    settle_interrupted(moved.opened)
    assert (statuses(moved), moved.files(), moved.aside()) == ([ABANDONED], ALL, [])


def test_a_copy_of_a_lake_is_settled_by_itself(killed: Directory) -> None:
    place = Path(shutil.copytree(killed.root.parent, killed.root.parent.with_name("copy")))
    copied = Directory(replace(killed.opened, location=str(place / killed.root.name)))
    settle_interrupted(copied.opened)
    assert (copied.files(), copied.aside()) == (ALL, [])
    assert (killed.files(), killed.aside()) == (ALL[1:], ["a.parquet.removed"])


def test_runs_of_a_lake_that_was_moved_are_undone_and_reclaimed(tmp_path: Path) -> None:
    events = directory(tmp_path)
    run = apply_plan(events.opened, events.plan()).run
    moved = elsewhere(events)
    killed_at(Step.REMOVED_FILE_LINKED, lambda: undo_run(moved.opened, run))
    settle_interrupted(moved.opened)
    assert (moved.files(), moved.aside()) == (ALL, [])
    moved = Directory(replace(moved.opened, clock=lambda: NOW + 10 * DAY))
    apply_plan(moved.opened, replace(moved.plan(), as_of_ns=NOW))
    later = replace(moved.opened, clock=lambda: NOW + 30 * DAY)
    assert reclaim_table(later).going.files == 1
    assert moved.aside() == []


def test_a_record_that_cannot_be_read_for_a_moment_leaves_the_run_unfinished(
    killed: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = files.read_bytes

    def fail(location: str) -> bytes | None:
        if "/changes/" in location:
            raise StorageError(f"{location}: no answer")
        return reading(location)

    monkeypatch.setattr(files, "read_bytes", fail)
    with pytest.raises(StorageError):
        settle_interrupted(killed.opened)
    monkeypatch.undo()
    assert statuses(killed) == []
    settle_interrupted(killed.opened)
    assert (statuses(killed), killed.files()) == ([ABANDONED], ALL)
