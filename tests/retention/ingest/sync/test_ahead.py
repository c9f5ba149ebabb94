"""Batches that are written while they are read: their parts, their bounds, and what is left when either side fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.context.context import OpenedStream
from retention.core.message_rows import complete_rows
from retention.datafile.segment_writer import Staged, stage_rows
from retention.errors import StorageError, VerificationError
from retention.ingest.sync import ahead
from retention.ingest.sync.ahead import AbandonedError, AheadBatch, Handover
from retention.ingest.sync.options import SyncBounds
from retention.ingest.sync.run import run_sync
from tests.support.recorded_stream import RecordedStream, messages
from tests.support.sandboxes import opened

SYNCED: dict[str, Any] = {"name": "ORDERS", "sync": {"server": "nats://127.0.0.1:1"}}
ROWS = pa.table({"seq": [1, 2]})
WITHIN_S = 60


@pytest.fixture
def copy(tmp_path: Path) -> OpenedStream:
    return opened(tmp_path, SYNCED).new_stream("ORDERS").opened


def files(copy: OpenedStream) -> list[str]:
    """All data files, committed or not, and those that are being written."""
    found = Path(copy.root).rglob("segment=*/*")
    return [path.name for path in found if "subjects" not in path.parts]


def assert_equal(copy: OpenedStream, remote: RecordedStream) -> None:
    expected = complete_rows(remote.rows, "file")
    held = pa.concat_tables(Stream(copy, "local").messages())
    assert held.select(expected.column_names).cast(expected.schema).equals(expected)


@pytest.mark.parametrize(("most_rows", "commits"), [(1, 3), (2, 3), (3, 3), (100, 3)])
def test_batches_have_the_same_bounds_whatever_parts_they_come_in(
    copy: OpenedStream, most_rows: int, commits: int
) -> None:
    remote = RecordedStream.of(messages(1, 11), most_rows=most_rows)
    assert run_sync(copy, remote, SyncBounds(batch_messages=4)).commits == commits
    assert_equal(copy, remote)


def test_a_batch_ends_before_a_part_that_might_exceed_its_bytes(copy: OpenedStream) -> None:
    remote = RecordedStream.of(messages(1, 8, b"x" * 10_000), most_rows=1)
    assert run_sync(copy, remote, SyncBounds(batch_bytes=25_000)).commits == 4
    assert_equal(copy, remote)


def test_rows_are_written_again_after_a_lost_race(
    copy: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = opened(Path(copy.root).parents[1], SYNCED)
    stage, staged = AheadBatch.stage, []

    def overtaken(self: AheadBatch, *given: Any) -> Staged:
        staged.append(stage(self, *given))
        if len(staged) == 1:
            rival.hold("ORDERS", reason="case 41", to_seq=1)
        return staged[-1]

    monkeypatch.setattr(AheadBatch, "stage", overtaken)
    remote = RecordedStream.of(messages(1, 11), most_rows=2)
    assert run_sync(copy, remote, SyncBounds(batch_messages=4)).commits == 3
    assert_equal(copy, remote)
    first, second = ([row["path"] for row in each.stats] for each in staged[:2])
    assert not set(first) & set(second)
    assert len(files(copy)) == 3


def test_files_without_a_message_that_was_read_are_not_committed(
    copy: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(staging: Any, rows: Any, ends: Any) -> Staged:
        first, *_ = rows
        return stage_rows(staging, [first], ends)

    monkeypatch.setattr(ahead, "stage_rows", forgetful)
    with pytest.raises(VerificationError, match="2 messages are in files, and 3 were read up to"):
        run_sync(copy, RecordedStream.of(messages(1, 3), most_rows=2))
    assert copy.store.snapshot().counters.next_seq == {}
    assert files(copy) == []


def test_a_reader_that_fails_leaves_the_batches_before_and_no_part(copy: OpenedStream) -> None:
    remote = RecordedStream.of(messages(1, 11), most_rows=2)
    tables = iter(range(100))

    def fail() -> None:
        if next(tables) == 5:
            raise KeyboardInterrupt

    remote.each_table = fail
    with pytest.raises(KeyboardInterrupt):
        run_sync(copy, remote, SyncBounds(batch_messages=4))
    assert copy.store.snapshot().counters.next_seq == {0: 9}
    assert len(files(copy)) == 2


def test_an_error_of_the_writer_reaches_a_reader_that_waits_for_it(
    copy: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_staging: object, rows: Any, _ends: object) -> Staged:
        next(iter(rows))
        raise StorageError("no space left")

    monkeypatch.setattr(ahead, "stage_rows", full)
    remote = RecordedStream.of(messages(1, 200), most_rows=1)
    with pytest.raises(StorageError, match="no space left"):
        run_sync(copy, remote, SyncBounds(batch_messages=1_000, batch_bytes=500))
    assert copy.store.snapshot().counters.next_seq == {}
    assert files(copy) == []


def test_an_error_at_the_end_of_a_file_is_the_one_that_is_told(
    copy: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_staging: object, rows: Any, _ends: object) -> Staged:
        list(rows)
        raise StorageError("cannot be synced")

    monkeypatch.setattr(ahead, "stage_rows", broken)
    remote = RecordedStream.of(messages(1, 11), most_rows=2)
    with pytest.raises(StorageError, match="cannot be synced"):
        run_sync(copy, remote, SyncBounds(batch_messages=4))
    assert files(copy) == []


def test_a_reader_waits_while_too_much_is_unwritten_and_one_part_is_always_taken() -> None:
    handover, taken = Handover(ROWS.nbytes), threading.Event()
    with ThreadPoolExecutor(1) as reader:
        handover.put(ROWS)
        second = reader.submit(handover.put, ROWS)
        assert not second.done()
        parts = handover.parts()
        next(parts)
        second.result(WITHIN_S)
        handover.end()
        assert list(parts) == [ROWS]
        taken.set()
    assert taken.is_set()


def test_an_abandoned_batch_takes_its_parts_back_and_leaves_the_ones_before() -> None:
    handover = Handover(10 * ROWS.nbytes)
    handover.put(ROWS)
    handover.end()
    handover.put(ROWS)
    handover.put(ROWS)
    handover.abandon()
    assert list(handover.parts()) == [ROWS]
    with pytest.raises(AbandonedError):
        next(handover.parts())


def test_nobody_waits_for_a_writer_that_failed() -> None:
    handover = Handover(ROWS.nbytes)
    handover.put(ROWS)
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(handover.put, ROWS)
        handover.close()
        waiting.result(WITHIN_S)
    handover.put(ROWS)
    with pytest.raises(AbandonedError):
        next(handover.parts())
