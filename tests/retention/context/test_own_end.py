"""The end of a log after this process's own commits is the one that the table has, and others' commits end it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.context.context import OpenedStream
from retention.context.own_end import KnownEnd, LastCommit
from retention.context.position import Position, locate
from retention.datafile.segment_writer import PARTITION, stage_rows, with_sequences
from retention.dialects.jetstream import JetStream
from retention.errors import LostCommitError
from retention.ingest.append import append_rows, appending
from retention.ingest.sync.iggy.run import run_topic_sync
from retention.ingest.sync.options import SyncBounds
from retention.ingest.sync.run import run_sync
from retention.ingest.turns import ONE_BY_ONE, AllAtOnce, Turns
from retention.stores.delta import internals
from retention.stores.delta.checkpointing import CHECKPOINT_EVERY
from retention.stores.delta.store import DeltaStore
from tests.retention.ingest.test_append import batch
from tests.support.overwritten_log import newest, overwrite
from tests.support.recorded_stream import RecordedStream, messages
from tests.support.recorded_topic import STREAM, TOPIC, RecordedServer
from tests.support.sandboxes import opened
from tests.support.topics import World

SERVER = {"server": "nats://127.0.0.1:1"}


def stream(folder: Path, **more: Any) -> OpenedStream:
    return opened(folder, {"name": "ORDERS", "format": "delta", **more}).new_stream("ORDERS").opened


def assert_located(end: KnownEnd, position: Position, partitions: int) -> None:
    assert (end.version, end.is_empty) == (position.version, position.is_empty)
    for number in range(partitions):
        assert end.tail(number) == position.tail(number)
    for name in ("next_seq", "open_base", "batches", "edits", "removed"):
        assert dict(getattr(end.counters, name)) == dict(getattr(position.counters, name)), name


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[OpenedStream]]:
    """Compares every known end of the stream in the list with the table; at least one is known."""
    streams: list[OpenedStream] = []
    ends: list[KnownEnd] = []
    end_of = LastCommit.end

    def end(last: LastCommit) -> KnownEnd | None:
        found = end_of(last)
        assert found is not None
        [copy] = streams
        assert_located(found, locate(copy), copy.config.partitions)
        ends.append(found)
        return found

    monkeypatch.setattr(LastCommit, "end", end)
    yield streams
    assert ends


def test_a_stream_with_gaps_rolls_and_commits_without_messages(
    tmp_path: Path, known: list[OpenedStream]
) -> None:
    copy = stream(tmp_path, sync=SERVER, segment_size=200)
    known.append(copy)
    remote = RecordedStream.of(messages(1, 40))
    remote.without(3, 4, 20, 21, 22, 23, 39, 40)
    assert run_sync(copy, remote, SyncBounds(batch_messages=3)).commits > CHECKPOINT_EVERY
    assert len(set(locate(copy).inventory.files["segment"].to_pylist())) > 3


def test_a_topic_of_several_partitions(tmp_path: Path, known: list[OpenedStream]) -> None:
    sync = {"server": "127.0.0.1:1", "stream": STREAM, "topic": TOPIC}
    copy = World(tmp_path, "delta", {"sync": sync}).topic.opened
    known.append(copy)
    run_topic_sync(copy, RecordedServer("more").topic, SyncBounds(batch_messages=4))


def appended(copy: OpenedStream, *seqs: int, turns: Turns = ONE_BY_ONE) -> LastCommit | None:
    """Append messages that get these sequences; returns the commit."""
    rows = batch(*map(str, seqs))
    with appending(copy, turns=turns) as append:
        for attempt in append.attempts_at_end():
            tail = attempt.end.tail(PARTITION)
            ends = JetStream.of(copy.config).ends(tail)
            append.commit(stage_rows(attempt.staging, with_sequences([rows], tail.next_seq), ends))
    assert append.done.last_seq == seqs[-1]
    last: LastCommit | None = vars(copy.own_end)["_last"]
    return last


def test_the_table_is_opened_once_its_log_rarely_listed_and_its_files_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = stream(tmp_path)
    calls: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counting(*given: Any) -> Any:
            calls[name] += 1
            return function(*given)

        monkeypatch.setattr(owner, name, counting)

    appended(copy, 1)
    counted(DeltaStore, "snapshot")
    counted(internals, "log_names")
    for seq in range(2, 4 * CHECKPOINT_EVERY + 2):
        appended(copy, seq)
    assert calls == {"log_names": 4}
    assert isinstance(copy.store, DeltaStore)
    assert vars(copy.store)["_before"] is None
    checkpoints = Path(copy.root, "messages", "_delta_log").glob("*.checkpoint.parquet")
    assert len(list(checkpoints)) == 4
    assert locate(copy).inventory.files.num_rows == 4 * CHECKPOINT_EVERY + 1


def test_a_commit_of_another_process_is_seen_and_its_messages_come_first(tmp_path: Path) -> None:
    copy = stream(tmp_path)
    last = appended(copy, 1)
    assert last is not None
    append_rows(stream(tmp_path), [batch("x", "y")])
    assert last.end() is None
    last = appended(copy, 4)
    assert last is not None
    assert last.end() is not None


def test_a_commit_that_comes_first_in_the_last_moment_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = stream(tmp_path)
    last = appended(copy, 1)
    commit_on = DeltaStore.commit_on

    def late(*arguments: Any) -> int:
        monkeypatch.undo()
        appended(stream(tmp_path), 2, 3, turns=AllAtOnce(1))
        return commit_on(*arguments)

    monkeypatch.setattr(DeltaStore, "commit_on", late)
    last = appended(copy, 4, 5)
    assert locate(copy).next_seq == 6
    assert last is not None
    assert last.end() is not None


def test_a_commit_that_another_program_overwrote_is_refused(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, {"name": "ORDERS", "format": "delta"})
    copy = warehouse.new_stream("ORDERS").opened
    appended(copy, 1)
    appended(copy, 2)
    overwrite(warehouse, newest(warehouse))
    with pytest.raises(LostCommitError):
        appended(copy, 3)


def test_a_dropped_stream_and_a_parquet_table_have_no_known_end(tmp_path: Path) -> None:
    assert appended(stream(tmp_path / "p", format="parquet"), 1) is None
    folder = tmp_path / "d"
    copy = stream(folder)
    last = appended(copy, 1)
    assert last is not None
    opened(folder, {"name": "ORDERS", "format": "delta"}).stream("ORDERS").drop().apply()
    assert last.end() is None
    appended(copy, 1)
