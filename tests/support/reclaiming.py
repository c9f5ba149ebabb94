"""Streams with removed files after their grace, by the real clock, because reclaim uses the storage's clock."""

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
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage.crash_points import Step, watched_by
from retention.stores import storage_clock
from retention.stores.layout import Layout
from retention.stores.parquet.log import LIST_EVERY, CommitEntry, ParquetLog
from tests.support.laying import START, even_segments, lay, warehouse_with

TICK_S = 0.02
"""Longer than a tick of the storage's clock."""


def real_warehouse(folder: Path, format_: str, **limits: Any) -> Warehouse:
    """A warehouse with one stream, ORDERS, without a grace, with the machine's clock."""
    warehouse_with(folder, format_, START, **({"grace": "0s"} | limits))
    return open_warehouse(folder / "retention.yaml", engine="local")


def emptied(folder: Path, format_: str, segments: int = 4, **limits: Any) -> OpenedStream:
    """A stream after a pass that just dropped the old segments, and rewrote one."""
    keeps = {"max_msgs": 15} | limits
    opened = real_warehouse(folder, format_, **keeps).stream("ORDERS").opened
    lay(opened, even_segments(segments, 10))
    run_pass(folder)
    return opened


def with_dead_files(folder: Path, format_: str) -> None:
    """A stream with files removed by passes, and with staging files of a pass that died before its commit.

    One of the removed files had a gap, because another run had removed a message from it. Passes have archived theirs.
    """
    emptied(folder, format_, max_msgs=25, archive="archive")
    real_warehouse(folder, format_, max_msgs=25).stream("ORDERS").delete(17).apply()
    real_warehouse(folder, format_, max_msgs=18, archive="archive")
    run_pass(folder)
    kept = {"history": "0s", "archive": "archive", "archive_keep": "0s"}
    warehouse = real_warehouse(folder, format_, max_msgs=12, **kept)

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
    """A stream after a publish that died before its commit, and another during a write; both are noted."""
    leave(folder, format_)
    reclaim_leftovers(again(folder))
    time.sleep(TICK_S)


def leave(folder: Path, format_: str) -> OpenedStream:
    """The same, without notes."""
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
    """The stream, opened as by another process."""
    return open_warehouse(folder / "retention.yaml", engine="local").stream("ORDERS").opened


def later(folder: Path, patch: pytest.MonkeyPatch, ns: int = 2 * HOUR) -> OpenedStream:
    """The stream, opened as by another process some hours from now, by every clock."""
    clock = again(folder).clock
    patch.setattr(storage_clock, "storage_now", lambda _: clock() + ns)
    path = folder / "retention.yaml"
    return open_warehouse(path, engine="local", clock=lambda: clock() + ns).stream("ORDERS").opened


def log_directory(opened: OpenedStream) -> Path:
    """The directory of a stream's log."""
    kind = ("messages/_delta_log", "_retention/log")[opened.config.format == "parquet"]
    return Path(opened.root, kind)


def lengthen_log(opened: OpenedStream) -> None:
    """Make many commits without files, including checkpoints or lists, and set the whole log's age to a month."""
    commit_nothing(opened)
    month_ago = opened.clock() - 30 * DAY
    for path in log_directory(opened).iterdir():
        os.utime(path, ns=(month_ago, month_ago))


def commit_nothing(opened: OpenedStream) -> None:
    """Make enough commits without files for two checkpoints or lists."""
    if opened.config.format == "parquet":
        log = ParquetLog(Layout(opened.root, opened.name))
        first = log.newest() + 1
        for version in range(first, first + 2 * LIST_EVERY + 20):
            state = log.read()
            if state.wants_list:
                log.write_list(state)
            log.append(CommitEntry(version, 0), state)
        return
    for _ in range(25):
        nothing = Swap(LOGGED_FILES.empty_table(), FILE_STATS.empty_table(), {"run": "nothing"})
        opened.store.commit(nothing, opened.store.snapshot())
        opened.store.finish()


def reclaim(folder: Path) -> None:
    """Reclaim as in a new process."""
    reclaim_now(again(folder))


def reclaim_left(folder: Path) -> None:
    """Reclaim leftovers as in a new process."""
    reclaim_leftovers(again(folder))


def run_pass(folder: Path) -> str:
    """Run one pass; returns the name of the run."""
    warehouse = open_warehouse(folder / "retention.yaml", engine="local")
    [outcome] = warehouse.apply()
    if outcome.error is not None:
        raise outcome.error
    assert outcome.value is not None
    time.sleep(TICK_S)
    return outcome.value.run


def data_files(folder: Path) -> list[str]:
    """The data files of ORDERS on the disk, live or dead, without other files."""
    root = folder / "streams" / "ORDERS"
    places = [root / "messages", *(root / "_retention" / kind for kind in ("trash", "staging"))]
    return sorted(
        str(path.relative_to(root))
        for place in places
        for path in place.rglob("*.parquet")
        if "_delta_log" not in path.parts
    )
