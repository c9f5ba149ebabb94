"""Streams from which a pass has removed files whose grace is over, by the real clock: reclaim goes by the storage's."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.reclaim.leftovers import reclaim_leftovers
from retention.apply.reclaim.run import reclaim_now
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.core.units import DAY, HOUR
from retention.errors import CommitUnknownError
from retention.history.runs import history_of
from retention.ports import Swap
from retention.storage.crash_points import Step, watched_by
from retention.stores import storage_clock
from retention.stores.layout import Layout
from retention.stores.parquet.log import LIST_EVERY, Entry, ParquetLog
from schemas.files import FILE_STATS, LOGGED_FILES
from tests.support.laying import START, even_segments, lay, warehouse_with

TICK_S = 0.02
"""Longer than the storage's clock stands still."""


def real_warehouse(folder: Path, format_: str, **limits: Any) -> Warehouse:
    """A warehouse with one stream, ORDERS, no grace, and the machine's clock."""
    warehouse_with(folder, format_, START, **({"grace": "0s"} | limits))
    return open_warehouse(folder / "retention.yaml", engine="local")


def emptied(folder: Path, format_: str, segments: int = 4, **limits: Any) -> OpenedStream:
    """A stream of which a pass has dropped the old segments, and rewritten one, a moment ago."""
    keeps = {"max_msgs": 15} | limits
    opened = real_warehouse(folder, format_, **keeps).stream("ORDERS").opened
    lay(opened, even_segments(segments, 10))
    run_pass(folder)
    return opened


def with_dead_files(folder: Path, format_: str) -> None:
    """A stream with files that passes have removed, and with those that a pass staged which died before its commit.

    One of the removed files had a hole: another run had taken a message out of it before.
    """
    emptied(folder, format_, max_msgs=25)
    real_warehouse(folder, format_, max_msgs=25).stream("ORDERS").delete(17).apply()
    real_warehouse(folder, format_, max_msgs=18)
    run_pass(folder)
    warehouse = real_warehouse(folder, format_, max_msgs=12, history="0s")

    def die(step: Step) -> None:
        if step is Step.HISTORY_BEGUN:
            raise CommitUnknownError("the process is gone")

    with watched_by(die):
        [outcome] = warehouse.apply()
    assert isinstance(outcome.error, CommitUnknownError)
    opened = again(folder)
    settle_interrupted(opened, history_of(opened.warehouse, opened.name))
    lengthen_log(opened)
    note = Path(opened.root, "_retention", "disjoint", "on-files-that-are-gone")
    note.parent.mkdir()
    note.touch()
    time.sleep(TICK_S)


def with_leftovers(folder: Path, format_: str) -> None:
    """A stream in which a publish has died before its commit, and another in the middle of a write; both are noted."""
    leave(folder, format_)
    reclaim_leftovers(again(folder))
    time.sleep(TICK_S)


def leave(folder: Path, format_: str) -> OpenedStream:
    """The same, and nobody has noted them."""
    opened = emptied(folder, format_)
    committing = {"delta": Step.DELTA_COMMITTING, "parquet": Step.ENTRY_SYNCED}[format_]

    def die(step: Step) -> None:
        if step is committing:
            raise CommitUnknownError("the process is gone")

    stream = open_warehouse(folder / "retention.yaml", engine="local").stream("ORDERS")
    with watched_by(die), suppress(CommitUnknownError):
        stream.publish([b'{"subject": "a", "data": "x"}'])
    Path(opened.root, "_retention", ".note.0.tmp").write_bytes(b"half")
    reclaim_now(opened)
    time.sleep(TICK_S)
    return again(folder)


def again(folder: Path) -> OpenedStream:
    """The stream as another process would open it."""
    return open_warehouse(folder / "retention.yaml", engine="local").stream("ORDERS").opened


def later(folder: Path, patch: pytest.MonkeyPatch, ns: int = 2 * HOUR) -> OpenedStream:
    """The stream as another process would open it some hours from now, by every clock."""
    clock = again(folder).clock
    patch.setattr(storage_clock, "storage_now", lambda _: clock() + ns)
    path = folder / "retention.yaml"
    return open_warehouse(path, engine="local", clock=lambda: clock() + ns).stream("ORDERS").opened


def log_directory(opened: OpenedStream) -> Path:
    """Where the log of a stream lies."""
    kind = ("messages/_delta_log", "_retention/log")[opened.config.format == "parquet"]
    return Path(opened.root, kind)


def lengthen_log(opened: OpenedStream) -> None:
    """Make many commits without a file, with checkpoints or lists among them, and have the whole log be a month old."""
    commit_nothing(opened)
    month_ago = opened.clock() - 30 * DAY
    for path in log_directory(opened).iterdir():
        os.utime(path, ns=(month_ago, month_ago))


def commit_nothing(opened: OpenedStream) -> None:
    """Make so many commits without a file that two checkpoints or lists are among them."""
    if opened.config.format == "parquet":
        log = ParquetLog(Layout(opened.root, opened.name))
        first = log.newest() + 1
        for version in range(first, first + 2 * LIST_EVERY + 20):
            state = log.read()
            if state.wants_list:
                log.write_list(state)
            log.append(Entry(version, 0), state)
        return
    for _ in range(25):
        nothing = Swap(LOGGED_FILES.empty_table(), FILE_STATS.empty_table(), {"run": "nothing"})
        opened.store.commit(nothing, opened.store.snapshot())
        opened.store.finish()


def reclaim(folder: Path) -> None:
    """Reclaim as a process of its own would."""
    reclaim_now(again(folder))


def reclaim_left(folder: Path) -> None:
    """Reclaim leftovers as a process of its own would."""
    reclaim_leftovers(again(folder))


def run_pass(folder: Path) -> str:
    """Run one pass; the name of the run."""
    warehouse = open_warehouse(folder / "retention.yaml", engine="local")
    [outcome] = warehouse.apply()
    if outcome.error is not None:
        raise outcome.error
    assert outcome.value is not None
    time.sleep(TICK_S)
    return outcome.value.run


def data_files(folder: Path) -> list[str]:
    """The data files of ORDERS that are on the disk, live or not, without what lies beside them."""
    root = folder / "streams" / "ORDERS"
    places = [root / "messages", *(root / "_retention" / kind for kind in ("trash", "staging"))]
    return sorted(
        str(path.relative_to(root))
        for place in places
        for path in place.rglob("*.parquet")
        if "_delta_log" not in path.parts
    )
