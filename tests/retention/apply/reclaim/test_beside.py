"""Files next to the table are deleted with the files they describe, so leftovers do not grow with publishes."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.apply.compact import CompactionLimits, compact_now
from retention.apply.reclaim.run import NOTES, TOMBSTONES, plan_reclaim, reclaim_now
from retention.apply.undo import undo_run
from retention.context.context import OpenedStream
from retention.core.reclaim import spent_records
from retention.core.units import DAY
from retention.engines.select import Engines
from retention.history.runs import history_of
from retention.stores.dead_files import dead_files_of
from retention.stores.delta import commit_tokens
from retention.stores.layout import Layout
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import File, Laid, even_segments, held, lay
from tests.support.reclaiming import TICK_S, again, emptied, log_directory, real_warehouse, run_pass

FORMATS = pytest.mark.parametrize("format_", ["delta", "parquet"])
PUBLISHES = int(os.environ.get("RETENTION_PUBLISHES", "40"))
"""500: `make publishes`."""
MOST_FILES = 20
SPENT = {
    "old ones": ({1: 10, 2: 20, 3: 30}, 3, (), [1, 2]),
    "the one in force": ({3: 10}, 3, (), []),
    "one of a commit under way": ({3: 10, 4: 10}, 3, (), []),
    "named": ({1: 10, 2: 10, 3: 10}, 3, (2,), [1]),
    "young": ({1: 10, 2: 100, 3: 110}, 3, (), [1]),
    "nothing is in force": ({1: 10}, 0, (), []),
}


def kept_files(folder: Path) -> Counter[str]:
    """Every file on the disk except messages, by directory."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return Counter("/".join(path.parts[:4]) for path in found)


def age(opened: OpenedStream, *directories: Path, days: int = 30) -> None:
    """Set the storage times of all files in some directories to a number of days ago."""
    at_ns = opened.clock() - days * DAY
    for directory in directories:
        for path in directory.rglob("*"):
            os.utime(path, ns=(at_ns, at_ns))


@FORMATS
def test_what_is_left_of_small_publishes_does_not_grow_with_them(
    tmp_path: Path, format_: str
) -> None:
    real_warehouse(tmp_path, format_, compact={})
    stream = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")
    for number in range(PUBLISHES):
        stream.publish([b'{"subject": "a.%d", "data": "x"}' % (number % 7)] * 20)
    before = held(open_warehouse(tmp_path))
    compact_now(again(tmp_path), Engines("local"), CompactionLimits())
    age(stream.opened, tmp_path)
    reclaim_now(again(tmp_path))
    there = kept_files(tmp_path)
    # Further names of the newest entries of the log.
    assert there.pop("streams/ORDERS/_retention/commits", 0) <= commit_tokens.KEPT
    assert there.total() <= MOST_FILES, there
    assert held(open_warehouse(tmp_path)).equals(before)
    assert before.num_rows == 20 * PUBLISHES


@pytest.mark.parametrize(("written", "in_force", "named", "expected"), SPENT.values(), ids=SPENT)
def test_records_that_nothing_names_are_spent(
    written: dict[int, int], in_force: int, named: tuple[int, ...], expected: list[int]
) -> None:
    assert spent_records(written, in_force, named, 100) == expected


def released(folder: Path, format_: str, **settings: object) -> OpenedStream:
    """A stream after three passes that each hid one more row in its second segment."""
    limits = {"retention": "interest", "release_share": "50%"} | settings
    opened = real_warehouse(folder, format_, **limits).stream("ORDERS").opened
    lay(opened, even_segments(4, 10))
    for acked in (12, 13, 14):
        stand(again(folder), "billing", progress(acked, acked))
        run_pass(folder)
    return again(folder)


def records(opened: OpenedStream) -> list[str]:
    return sorted(path.name for path in Path(opened.root, "_retention", "released").iterdir())


@FORMATS
def test_old_records_of_row_tombstones_go(tmp_path: Path, format_: str) -> None:
    opened = released(tmp_path, format_)
    *old, in_force = records(opened)
    planned = plan_reclaim(opened)
    assert planned.going[TOMBSTONES].files == len(old) == 2
    assert reclaim_now(opened).going == planned.going
    assert records(opened) == [in_force]
    assert held(open_warehouse(tmp_path))["seq"].to_pylist() == list(range(15, 41))


@FORMATS
def test_records_that_an_undo_needs_stay(tmp_path: Path, format_: str) -> None:
    opened = released(tmp_path, format_, grace="1d")
    age(opened, Path(opened.root, "_retention", "released"), log_directory(opened), days=2)
    assert TOMBSTONES not in reclaim_now(opened).going
    assert len(records(opened)) == 3
    second, third = list(history_of(opened.warehouse, "ORDERS").outcomes())[1::-1]
    undo_run(again(tmp_path), third.run)
    undo_run(again(tmp_path), second.run)
    assert held(open_warehouse(tmp_path))["seq"].to_pylist() == list(range(13, 41))


@FORMATS
def test_versions_since_an_instant_name_their_records(tmp_path: Path, format_: str) -> None:
    opened = released(tmp_path, format_)
    dead = dead_files_of(Layout(opened.root, "ORDERS"), format_, opened.store)
    entries = sorted(log_directory(opened).glob("*.json"))
    now_ns = opened.clock()
    assert dead.tombstones(now_ns + DAY) == frozenset({3})
    for old in (1, 2, 3):
        for entry in entries[:-old]:
            os.utime(entry, ns=(now_ns - 2 * DAY, now_ns - 2 * DAY))
        for entry in entries[-old:]:
            os.utime(entry)
        named = dead.tombstones(now_ns - DAY)
        assert named is not None
        assert named - {0} == set(range(max(3 - old, 1), 4))
    entries[-2].unlink()
    assert dead.tombstones(now_ns - DAY) is None


@FORMATS
def test_notes_on_files_that_are_gone_go(tmp_path: Path, format_: str) -> None:
    opened = real_warehouse(tmp_path, format_).stream("ORDERS").opened
    odd, even = (File(1, [Laid(seq) for seq in range(first, 20, 2)]) for first in (1, 2))
    lay(opened, [odd, even])
    notes = Path(opened.root, "_retention", "disjoint")
    again(tmp_path).store.inventory(again(tmp_path).store.snapshot())
    stale = notes / ("0" * 64)
    assert len(list(notes.iterdir())) == 1
    stale.touch()
    assert plan_reclaim(again(tmp_path)).going[NOTES].files == 1
    assert reclaim_now(again(tmp_path)).going[NOTES].files == 1
    assert stale not in list(notes.iterdir())
    assert len(list(notes.iterdir())) == 1
    assert NOTES not in reclaim_now(again(tmp_path)).going


@FORMATS
def test_directories_of_dropped_segments_go_and_the_open_one_stays(
    tmp_path: Path, format_: str
) -> None:
    opened = emptied(tmp_path, format_)
    root = Path(opened.root)
    reclaim_now(opened)
    left = {path.relative_to(root) for path in root.rglob("segment=*")}
    # Of four segments, two were removed, and one was rewritten.
    assert {path.name for path in left} == {"segment=21", "segment=31"}
    real_warehouse(tmp_path, format_, max_age="1s").apply()
    time.sleep(TICK_S)
    reclaim_now(again(tmp_path))
    assert {path.name for path in root.rglob("segment=*")} == {"segment=31"}
    stream = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")
    stream.publish([b'{"subject": "a", "data": "x"}'])
    assert held(open_warehouse(tmp_path))["seq"].to_pylist() == [41]
