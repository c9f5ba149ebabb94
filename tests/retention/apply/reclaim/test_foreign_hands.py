"""Others delete, restore and compact the Delta table: no version within the grace has a file deleted by reclaim."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from retention.api.warehouse import open_warehouse
from retention.apply.reclaim.run import LOG, RECORDS, reclaim_now
from retention.apply.undo_records import read_record
from retention.context.context import OpenedStream
from retention.core.reclaim import Hindrance, Reason
from retention.core.units import DAY, HOUR
from retention.history.runs import history_of
from retention.storage.crash_points import Step, watched_by
from retention.stores.delta.actions import add_action
from retention.stores.delta.internals import paths_in
from tests.support.delta_tables import write_next
from tests.support.laying import held
from tests.support.reclaiming import (
    TICK_S,
    again,
    data_files,
    emptied,
    later,
    log_directory,
    run_pass,
)


def table(folder: Path) -> DeltaTable:
    return DeltaTable(folder / "streams" / "ORDERS" / "messages")


def happen_later(opened: OpenedStream, act: Callable[[], None], ns: int = 2 * HOUR) -> None:
    """Act, and set the storage times of its log entries to some hours from now."""
    before = set(log_directory(opened).iterdir())
    act()
    for path in set(log_directory(opened).iterdir()) - before:
        at_ns = path.stat().st_mtime_ns + ns
        os.utime(path, ns=(at_ns, at_ns))


def test_what_a_restore_brought_back_stays(tmp_path: Path) -> None:
    opened = emptied(tmp_path, "delta")
    before = opened.store.snapshot().version - 1
    table(tmp_path).restore(before)
    time.sleep(TICK_S)
    assert reclaim_now(again(tmp_path)).going.get(Reason.REMOVED) is None
    assert held(open_warehouse(tmp_path)).num_rows == 40
    run_pass(tmp_path)
    reclaim_now(again(tmp_path))
    assert held(open_warehouse(tmp_path)).num_rows == 15


@pytest.mark.parametrize("by_entries", [True, False])
def test_what_comes_back_behind_a_claim_stays(tmp_path: Path, *, by_entries: bool) -> None:
    opened = emptied(tmp_path, "delta")
    version = opened.store.snapshot().version
    acted: list[Step] = []
    run = next(history_of(opened.warehouse, "ORDERS").outcomes()).run
    removed = read_record(opened, run, "removed").to_pylist()

    def add() -> None:
        actions = [add_action(row, None, data_change=False) for row in removed]
        write_next(Path(opened.root, "messages"), actions)

    def come_back(step: Step) -> None:
        if step is Step.DELTA_COMMITTED and not acted:
            acted.append(step)
            if by_entries:
                add()
            else:
                table(tmp_path).restore(version - 1)

    with watched_by(come_back):
        report = reclaim_now(again(tmp_path))
    assert acted
    assert Reason.REMOVED not in report.going
    assert len(data_files(tmp_path)) == 5


def test_a_file_that_came_back_and_left_within_the_grace_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = emptied(tmp_path, "delta", grace="1h")
    version, paths = opened.store.snapshot().version, set(data_files(tmp_path))

    def come_and_go() -> None:
        table(tmp_path).restore(version - 1)
        table(tmp_path).restore(version)

    happen_later(opened, come_and_go)
    report = reclaim_now(later(tmp_path, monkeypatch))
    assert report.going == {}
    assert report.staying[Hindrance.RECENT].files == 3
    assert set(data_files(tmp_path)) == paths


def test_without_the_restores_the_same_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied(tmp_path, "delta", grace="1h")
    assert reclaim_now(later(tmp_path, monkeypatch)).going[Reason.REMOVED].files == 3


def test_a_log_that_lost_young_entries_lets_nothing_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = emptied(tmp_path, "delta", grace="1h")
    stream = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")

    def publish() -> None:
        for _ in range(2):
            stream.publish([b'{"subject": "a", "data": "x"}'])
        table(tmp_path).create_checkpoint()

    happen_later(opened, publish)
    sorted(log_directory(opened).glob("*.json"))[-2].unlink()
    report = reclaim_now(later(tmp_path, monkeypatch))
    assert report.staying[Hindrance.GAP].files == 3
    assert len(data_files(tmp_path)) == 7


def test_a_stamp_from_a_clock_that_was_ahead_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = emptied(tmp_path, "delta", grace="1h")
    newest = sorted(log_directory(opened).glob("*.json"))[-1]
    ahead_ms = (opened.clock() + 2 * HOUR) // 1_000_000
    content = re.sub(
        r'"deletionTimestamp":\d+', f'"deletionTimestamp":{ahead_ms}', newest.read_text()
    )
    newest.write_text(content)
    assert reclaim_now(later(tmp_path, monkeypatch)).staying[Hindrance.GRACE].files == 3


def test_a_table_that_keeps_files_longer_decides(tmp_path: Path) -> None:
    emptied(tmp_path, "delta")
    table(tmp_path).alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 2 days"}
    )
    opened = again(tmp_path)
    report = reclaim_now(opened)
    assert report.grace_ns == 2 * DAY
    assert report.going == {}


def test_files_that_vacuum_took_are_forgotten(tmp_path: Path) -> None:
    opened = emptied(tmp_path, "delta")
    table(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(data_files(tmp_path)) == 2
    assert set(reclaim_now(opened).going) == {RECORDS}


def test_others_go_on_with_the_table(tmp_path: Path) -> None:
    emptied(tmp_path, "delta")
    reclaim_now(again(tmp_path))
    others = table(tmp_path)
    others.create_checkpoint()
    others.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    others.cleanup_metadata()
    others.optimize.compact()
    assert DeltaTable(others.table_uri).to_pyarrow_table().num_rows == 15
    assert held(open_warehouse(tmp_path)).num_rows == 15
    assert LOG not in reclaim_now(again(tmp_path)).going


def test_a_table_put_back_from_a_copy_keeps_what_the_lost_runs_removed(tmp_path: Path) -> None:
    opened = emptied(tmp_path, "delta")
    newest = sorted(log_directory(opened).glob("*.json"))[-1]
    newest.unlink()
    report = reclaim_now(again(tmp_path))
    assert Reason.REMOVED not in report.going
    assert held(open_warehouse(tmp_path)).num_rows == 40
    # Its version now has another commit.
    stream = open_warehouse(tmp_path / "retention.yaml", engine="local").stream("ORDERS")
    stream.publish([b'{"subject": "a", "data": "x"}'])
    assert Reason.REMOVED not in reclaim_now(again(tmp_path)).going
    assert held(open_warehouse(tmp_path)).num_rows == 41


def test_a_table_put_back_to_its_beginning_keeps_every_file(tmp_path: Path) -> None:
    opened = emptied(tmp_path, "delta")
    for entry in sorted(log_directory(opened).glob("*.json"))[1:]:
        entry.unlink()
    # No file is live, but a restore of the right log finds them all.
    assert Reason.REMOVED not in reclaim_now(again(tmp_path)).going
    assert len(data_files(tmp_path)) == 5


def test_paths_of_a_log_are_decoded() -> None:
    entry = b'{"remove":{"path":"a%20b/c%2525.parquet"}}\n{"add":{"path": "d\\/e\\u00e9.parquet"}}'
    assert paths_in(entry) == {"a b/c%25.parquet", "d/e\u00e9.parquet"}
