"""Files next to the table are deleted with the files they describe, so leftovers do not grow with publishes."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.apply.compact import CompactionLimits, compact_now
from retention.apply.reclaim.run import NOTES, plan_reclaim, reclaim_now
from retention.context.context import OpenedStream
from retention.core.units import DAY
from retention.engines.select import Engines
from retention.stores.delta import commit_tokens
from tests.support.laying import File, Laid, held, lay
from tests.support.reclaiming import TICK_S, again, emptied, real_warehouse

FORMATS = pytest.mark.parametrize("format_", ["delta", "parquet"])
PUBLISHES = int(os.environ.get("RETENTION_PUBLISHES", "40"))
"""500: `make long NAME=publishes`."""
MOST_FILES = 20


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
