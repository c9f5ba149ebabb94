"""Old log entries are deleted once a checkpoint or a list covers them, and none is missed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.apply.reclaim.run import LOG, plan_reclaim, reclaim_now
from retention.apply.undo import undo_run
from retention.context.context import OpenedStream
from retention.core.units import DAY
from retention.errors import DamagedError
from retention.history.runs import history_of
from retention.stores.layout import Layout
from retention.stores.old_log import OldLog, first_needed
from retention.stores.parquet.log import LIST_EVERY, ParquetLog
from retention.stores.parquet.old_log import WORTH_ENTRIES
from tests.support.laying import held
from tests.support.reclaiming import (
    commit_nothing,
    emptied,
    later,
    lengthen_log,
    log_directory,
    run_pass,
)

FORMATS = pytest.mark.parametrize("format_", ["delta", "parquet"])
NEEDED = {
    "no state": ({0: 1, 1: 2}, [], None),
    "all old": ({0: 1, 1: 2, 2: 3}, [1, 2], 2),
    "a young state": ({0: 1, 1: 2, 2: 300}, [2], None),
    "the old state counts": ({0: 1, 1: 2, 2: 300}, [1, 2], 1),
    "a young entry before it": ({0: 1, 1: 300, 2: 2}, [0, 2], None),
    "nothing is before it": ({1: 1, 2: 3}, [1], None),
    "its entry is gone": ({1: 1, 3: 3}, [2], None),
}


@pytest.mark.parametrize(("entries", "states", "expected"), NEEDED.values(), ids=NEEDED)
def test_a_state_stands_for_old_entries_alone(
    entries: dict[int, int], states: list[int], expected: int | None
) -> None:
    assert first_needed(entries, states, 100) == expected


def old_log(opened: OpenedStream) -> OldLog:
    """The log of a stream; entries older than a day are old."""
    version, cutoff_ns = opened.store.snapshot().version, opened.clock() - DAY
    return opened.table_format.old_log(opened.layout, version, cutoff_ns)


def with_long_log(folder: Path, format_: str) -> OpenedStream:
    """A stream with a pass and many later commits a month ago, and a recent pass."""
    opened = emptied(folder, format_, grace="1d")
    lengthen_log(opened)
    stream = open_warehouse(folder / "retention.yaml").stream("ORDERS")
    stream.publish([b'{"subject": "a", "data": "x"}'] * 3)
    run_pass(folder)
    return open_warehouse(folder / "retention.yaml").stream("ORDERS").opened


@FORMATS
def test_old_entries_go_and_everything_stands(tmp_path: Path, format_: str) -> None:
    opened = with_long_log(tmp_path, format_)
    before, entries = held(open_warehouse(tmp_path)), len(list(log_directory(opened).iterdir()))
    counters = opened.store.snapshot().counters
    planned = plan_reclaim(opened).going[LOG]
    report = reclaim_now(opened)
    assert report.going == {LOG: planned}
    assert len(list(log_directory(opened).iterdir())) <= entries - planned.files + 2
    assert planned.files > 15
    again = open_warehouse(tmp_path).stream("ORDERS")
    assert held(open_warehouse(tmp_path)).equals(before)
    assert again.opened.store.snapshot().counters == counters
    assert reclaim_now(again.opened).going == {}
    # The young pass is found, undone and repeated.
    run = next(history_of(opened.warehouse, "ORDERS").outcomes()).run
    assert again.opened.store.find_commit(run) is not None
    undo_run(again.opened, run)
    assert held(open_warehouse(tmp_path)).num_rows == before.num_rows + 3
    run_pass(tmp_path)
    assert held(open_warehouse(tmp_path)).equals(before)


@FORMATS
def test_old_entries_go_while_the_log_goes_on(tmp_path: Path, format_: str) -> None:
    opened = with_long_log(tmp_path, format_)
    entries = sorted(log_directory(opened).glob("*.json"))
    commit_nothing(opened)
    before = held(open_warehouse(tmp_path))
    planned = plan_reclaim(opened).going[LOG]
    assert reclaim_now(opened).going == {LOG: planned}
    assert sum(1 for entry in entries if entry.exists()) < len(entries) / 2
    assert held(open_warehouse(tmp_path)).equals(before)


def test_a_damaged_list_loses_nothing(tmp_path: Path) -> None:
    opened = with_long_log(tmp_path, "parquet")
    reclaim_now(opened)
    before = held(open_warehouse(tmp_path))
    older, newest = sorted(log_directory(opened).glob("*.parquet"))
    newest.write_bytes(b"PAR1")
    assert held(open_warehouse(tmp_path)).equals(before)
    older.write_bytes(b"PAR1")
    with pytest.raises(DamagedError, match="cannot be read"):
        open_warehouse(tmp_path).stream("ORDERS").opened.store.snapshot()


def test_a_short_log_gets_lists_for_its_entries(tmp_path: Path) -> None:
    """There is no list of a hundred entries yet."""
    opened = emptied(tmp_path, "parquet")
    stream = open_warehouse(tmp_path / "retention.yaml").stream("ORDERS")
    for _ in range(WORTH_ENTRIES):
        stream.publish([b'{"subject": "a", "data": "x"}'])
    month_ago = opened.clock() - 30 * DAY
    for path in log_directory(opened).iterdir():
        os.utime(path, ns=(month_ago, month_ago))
    before = held(open_warehouse(tmp_path))
    old = ParquetLog(Layout(opened.root, "ORDERS")).newest()
    assert reclaim_now(opened).going[LOG].files == old - 1
    names = sorted(path.name for path in log_directory(opened).iterdir() if path.suffix)
    # The last entry before the reclaim, and its own, are kept with the state that covers the others.
    listed = [f"{version:020d}.parquet" for version in (old - 1, old + 1)]
    assert names == sorted([*listed, *(f"{old + more:020d}.json" for more in (-1, 0, 1))])
    assert held(open_warehouse(tmp_path)).equals(before)


def test_where_an_entry_is_damaged_a_list_stands_for_those_before(tmp_path: Path) -> None:
    opened = with_long_log(tmp_path, "parquet")
    for version in range(LIST_EVERY + 50, 2 * LIST_EVERY + 1):
        for path in log_directory(opened).glob(f"{version:020d}.*"):
            os.utime(path)
    entry = log_directory(opened) / f"{LIST_EVERY + 1:020d}.json"
    month_ago = entry.stat().st_mtime_ns
    entry.write_bytes(b"{")
    os.utime(entry, ns=(month_ago, month_ago))
    assert opened.store.snapshot().files.num_rows
    assert old_log(opened).places() == [
        str(log_directory(opened) / f"{version:020d}.json") for version in range(LIST_EVERY)
    ]


@FORMATS
def test_old_is_what_the_clock_of_the_run_calls_old(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = emptied(tmp_path, format_)
    stream = open_warehouse(tmp_path / "retention.yaml").stream("ORDERS")
    for _ in range(WORTH_ENTRIES):
        stream.publish([b'{"subject": "a", "data": "x"}'])
    before = held(open_warehouse(tmp_path))
    there = len(list(log_directory(opened).iterdir()))
    planned = plan_reclaim(later(tmp_path, monkeypatch, 30 * DAY)).going[LOG]
    report = reclaim_now(later(tmp_path, monkeypatch, 30 * DAY))
    assert report.going[LOG].files > WORTH_ENTRIES
    assert report.going[LOG] == planned
    assert len(list(log_directory(opened).iterdir())) <= there + 5 - report.going[LOG].files
    assert held(open_warehouse(tmp_path)).equals(before)


def test_a_checkpoint_that_cannot_be_read_stands_for_nothing(tmp_path: Path) -> None:
    opened = emptied(tmp_path, "delta", grace="1d")
    lengthen_log(opened)
    *_, older, newest = sorted(log_directory(opened).glob("*.checkpoint.parquet"))
    log, at_ns = old_log(opened), newest.stat().st_mtime_ns
    newest.write_bytes(b"PAR1")
    os.utime(newest, ns=(at_ns, at_ns))
    old = log.places()
    assert max(map(Path, old)).name[:20] < older.name[:20]
    assert old


@FORMATS
def test_young_entries_stay(tmp_path: Path, format_: str) -> None:
    opened = with_long_log(tmp_path, format_)
    yesterday = opened.clock() - DAY
    for path in log_directory(opened).iterdir():
        os.utime(path, ns=(yesterday, yesterday))
    assert LOG not in plan_reclaim(opened).going
    assert LOG not in reclaim_now(opened).going
