"""Syncs from recorded streams: positions, refusals, gaps; tests/live/test_sync.py has real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.context.context import OpenedStream
from retention.core.message_rows import complete_rows
from retention.errors import BusyError, RefusedError, ServerError, Terminated, UsageError
from retention.ingest.append import Appended
from retention.ingest.sync.ahead import AheadBatch
from retention.ingest.sync.options import SyncBounds
from retention.ingest.sync.run import follow_sync, run_sync
from retention.storage.signals import Stop
from retention.stores.lease import lease
from tests.support.nats_oracle import Message
from tests.support.recorded_stream import RecordedStream, messages, restored
from tests.support.sandboxes import NOW, lines, opened

SYNCED = {"name": "ORDERS", "sync": {"server": "nats://127.0.0.1:1"}}
SMALL = SyncBounds(batch_messages=4)


@pytest.fixture
def copy(tmp_path: Path) -> OpenedStream:
    return opened(tmp_path, SYNCED).new_stream("ORDERS").opened


def held(copy: OpenedStream) -> pa.Table:
    from retention.api.stream import Stream

    return pa.concat_tables(Stream(copy, "local").messages()).drop_columns(["partition"])


def assert_equal(copy: OpenedStream, remote: RecordedStream) -> None:
    """The copy holds exactly the messages of the server, byte for byte."""
    expected = complete_rows(remote.rows, "file")
    assert held(copy).select(expected.column_names).cast(expected.schema).equals(expected)


def test_a_copy_has_the_servers_messages_in_bounded_commits_and_then_only_what_is_new(
    copy: OpenedStream,
) -> None:
    remote = RecordedStream.of(messages(1, 10))
    remote.without(3, 4)
    done = run_sync(copy, remote, SMALL)
    assert (done.messages, done.commits, done.position, done.behind) == (8, 2, 10, 0)
    assert_equal(copy, remote)
    assert run_sync(copy, remote).commits == 0
    remote.publish(messages(11, 13))
    assert (run_sync(copy, remote).messages, run_sync(copy, remote).messages) == (3, 0)
    assert_equal(copy, remote)
    with pytest.raises(AssertionError):
        assert_equal(copy, RecordedStream.of(messages(1, 13)))


def test_a_stream_that_begins_late_and_ends_in_a_gap_keeps_its_sequences(
    copy: OpenedStream,
) -> None:
    remote = RecordedStream.of(messages(1_000, 1_005))
    remote.without(1_004, 1_005)
    done = run_sync(copy, remote)
    assert (done.messages, done.position, done.missed.count) == (4, 1_005, 0)
    assert copy.store.snapshot().counters.next_seq == {0: 1_006}
    remote.publish(messages(1_006, 1_006))
    assert run_sync(copy, remote).messages == 1
    assert_equal(copy, remote)


def test_an_empty_stream_is_nothing_to_copy(copy: OpenedStream) -> None:
    done = run_sync(copy, RecordedStream.of([]))
    assert (done.messages, done.commits, done.position) == (0, 0, 0)


def test_what_the_server_removed_first_is_refused_before_the_commit_and_then_accepted(
    copy: OpenedStream,
) -> None:
    remote = RecordedStream.of(messages(1, 5))
    run_sync(copy, remote)
    remote.publish(messages(6, 12))
    remote.without(*range(1, 9))
    with pytest.raises(RefusedError, match=r"missed: 6 to 8 \(3\).*--max-missed 3`") as refused:
        run_sync(copy, remote)
    assert "nothing" not in str(refused.value)
    assert held(copy).num_rows == 5
    done = run_sync(copy, remote, SyncBounds(max_missed=3))
    assert (done.messages, done.missed.count) == (4, 3)
    assert held(copy)["seq"].to_pylist() == [1, 2, 3, 4, 5, 9, 10, 11, 12]


def test_limits_that_overtake_the_reader_in_the_middle_are_missed_and_deletes_are_not(
    copy: OpenedStream,
) -> None:
    remote = RecordedStream.of(messages(1, 12))
    remote.without(2)
    tables = iter([(), (5, 6), (), ()])
    remote.each_table = lambda: remote.without(*next(tables, ()))
    assert run_sync(copy, remote, SyncBounds(batch_messages=3)).missed.count == 0
    remote.publish(messages(13, 20))
    tables = iter([(), tuple(range(1, 18))])
    with pytest.raises(RefusedError, match=r"missed: 16 to 17 \(2\).*3 messages up to sequence 15"):
        run_sync(copy, remote, SyncBounds(batch_messages=3))
    assert held(copy)["seq"].to_pylist()[-1] == 15


def test_a_restored_stream_goes_on_and_says_so(copy: OpenedStream) -> None:
    remote = RecordedStream.of(messages(1, 6))
    run_sync(copy, remote)
    again = restored(remote)
    again.publish(messages(7, 8))
    again.without(6)
    assert run_sync(copy, again).is_restored
    again.publish(messages(9, 9))
    assert not run_sync(copy, again).is_restored
    assert held(copy)["seq"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def _other(remote: RecordedStream) -> RecordedStream:
    return restored(RecordedStream.of(messages(1, 50, b"other")))


def _shorter(remote: RecordedStream) -> RecordedStream:
    return restored(RecordedStream.of(messages(1, 3)))


def _without_overlap(remote: RecordedStream) -> RecordedStream:
    return restored(RecordedStream.of(messages(40, 50)))


def _lost_its_newest(remote: RecordedStream) -> RecordedStream:
    return RecordedStream.of(messages(1, 4))


def _reused(remote: RecordedStream) -> RecordedStream:
    return RecordedStream.of([*messages(1, 4), *messages(5, 9, b"reused")])


@pytest.mark.parametrize(
    ("another", "sentence"),
    [
        (_other, "message .* differs .* made anew"),
        (_shorter, "deleted and made anew, or restored from an older backup"),
        (_without_overlap, "no message that both hold can show that"),
        (_lost_its_newest, "its newest messages are lost there"),
        (_reused, "message 6 differs .* assigned their sequences again"),
    ],
)
def test_another_stream_under_the_name_is_refused(
    copy: OpenedStream,
    another: Callable[[RecordedStream], RecordedStream],
    sentence: str,
) -> None:
    remote = RecordedStream.of(messages(1, 6))
    run_sync(copy, remote)
    with pytest.raises(RefusedError, match=sentence):
        run_sync(copy, another(remote))
    assert held(copy).num_rows == 6


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_that_is_consumed_is_refused_with_the_mirror_to_make(
    copy: OpenedStream, retention: str
) -> None:
    remote = RecordedStream.of(messages(1, 6), config={"retention": retention})
    mirror = "nats stream add ORDERS_ARCHIVE --mirror ORDERS --storage file"
    with pytest.raises(RefusedError, match=mirror):
        run_sync(copy, remote)


def test_a_stream_made_anew_in_the_middle_of_a_run_is_refused_before_the_commit(
    copy: OpenedStream,
) -> None:
    remote = RecordedStream.of(messages(1, 10))
    states = iter([None, None, "2026-11-23T00:00:00Z"])

    def anew() -> None:
        remote.created = next(states, None) or remote.created

    remote.each_table = anew
    with pytest.raises(RefusedError, match=r"made anew or restored meanwhile.*4 messages up to"):
        run_sync(copy, remote, SyncBounds(batch_messages=2))
    assert held(copy).num_rows == 4


def test_a_server_that_ends_too_early_makes_nothing_skipped(
    copy: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RecordedStream.of(messages(1, 10))
    remote.without(9, 10)
    read = RecordedStream.read

    def lagging(self: RecordedStream, first: int, last: int, *bounds: int) -> Any:
        return read(self, first, min(last, 6), *bounds)

    with monkeypatch.context() as lies:
        lies.setattr(RecordedStream, "read", lagging)
        with pytest.raises(ServerError, match=r"still has message 7.*6 messages up to sequence 6"):
            run_sync(copy, remote)
    assert held(copy).num_rows == 6
    assert run_sync(copy, remote).position == 10
    assert_equal(copy, remote)


def test_nothing_else_writes_to_a_copy(copy: OpenedStream, tmp_path: Path) -> None:
    stream = opened(tmp_path, SYNCED).new_stream("ORDERS")
    for write in (
        lambda: stream.publish(lines(1)),
        lambda: stream.append([{"subject": "a", "payload": b"x"}]),
    ):
        with pytest.raises(UsageError, match="in step with a live server"):
            write()


def test_a_stream_with_messages_of_another_origin_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, {"name": "ORDERS", "subjects": ["orders.>"]}).new_stream("ORDERS").publish(
        lines(3)
    )
    copy = opened(tmp_path, SYNCED).stream("ORDERS").opened
    with pytest.raises(RefusedError, match="holds messages of another origin"):
        run_sync(copy, RecordedStream.of(messages(1, 9)))
    run_from_copy = RecordedStream.of([])
    with pytest.raises(RefusedError, match="the last of ORDERS"):
        run_sync(copy, run_from_copy)


def test_a_stream_that_others_wrote_to_since_is_refused(tmp_path: Path) -> None:
    copy = opened(tmp_path, SYNCED).new_stream("ORDERS").opened
    remote = RecordedStream.of(messages(1, 6))
    run_sync(copy, remote)
    opened(tmp_path, {"name": "ORDERS", "subjects": ["orders.>"]}).stream("ORDERS").publish(
        lines(1)
    )
    with pytest.raises(RefusedError, match="others wrote to it"):
        run_sync(opened(tmp_path, SYNCED).stream("ORDERS").opened, remote)


def test_two_syncs_of_a_stream_are_one_sentence(copy: OpenedStream) -> None:
    remote = RecordedStream.of(messages(1, 6))
    with lease(copy.root, "sync", lambda: NOW), pytest.raises(BusyError):
        run_sync(copy, remote)
    assert run_sync(copy, remote).messages == 6


def test_a_rival_without_the_lease_commits_first_and_nothing_is_doubled(
    copy: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    from retention.ingest.sync import run

    monkeypatch.setattr(run, "lease", lambda *_, **__: nullcontext())
    remote = RecordedStream.of(messages(1, 8))
    rivals = iter([None, None, "now"])
    is_committed = threading.Semaphore(0)

    class Committing(run.SyncRun):
        def _commit_written(self, batch: AheadBatch, checked: run._CheckedBatch) -> Appended:
            done = super()._commit_written(batch, checked)
            is_committed.release()
            return done

    def rival() -> None:
        if next(rivals, None):
            # The batch before is committed beside reading this one.
            assert is_committed.acquire(timeout=60)
            assert is_committed.acquire(timeout=60)
            run_sync(copy, RecordedStream.of(messages(1, 8)))

    monkeypatch.setattr(run, "SyncRun", Committing)
    remote.each_table = rival
    with pytest.raises(BusyError, match="another sync of it committed meanwhile"):
        run_sync(copy, remote, SyncBounds(batch_messages=2))
    assert_equal(copy, remote)


def test_a_followed_stream_ends_when_its_server_seals_it(copy: OpenedStream) -> None:
    remote = RecordedStream.of(messages(1, 6))
    turns = iter(range(100))

    def live() -> None:
        turn = next(turns)
        if turn == 3:
            remote.publish(messages(7, 9))
            remote.without(8, 9)
        if turn == 8:
            remote.config["sealed"] = True

    remote.each_table = live
    done = follow_sync(copy, remote)
    assert (done.messages, done.position, done.ended) == (7, 9, "sealed")
    assert_equal(copy, remote)


@pytest.mark.parametrize("signal", [KeyboardInterrupt, Terminated])
def test_a_followed_stream_ends_between_commits_on_a_signal(
    copy: OpenedStream, signal: type[BaseException]
) -> None:
    remote = RecordedStream.of(messages(1, 6))
    turns = iter(range(100))

    def live() -> None:
        if next(turns) == 4:
            raise signal

    remote.each_table = live
    done = follow_sync(copy, remote, SMALL)
    assert (done.messages, done.ended) == (6, "signal")


def test_large_messages_are_committed_alone_and_unchanged(copy: OpenedStream) -> None:
    large = [Message(seq, "s", 10**18 + seq, b"", bytes([seq]) * (8 << 20)) for seq in (1, 2, 3)]
    remote = RecordedStream.of(large)
    assert run_sync(copy, remote, SyncBounds(batch_messages=1)).commits == 3
    assert_equal(copy, remote)


@pytest.mark.parametrize("options", [{"batch_messages": 0}, {"batch_bytes": 0}, {"max_missed": -1}])
def test_bounds_below_their_least_are_refused(options: dict[str, Any]) -> None:
    from retention.ingest.sync.session import SyncOptions

    with pytest.raises(UsageError, match="at least"):
        SyncOptions(**options).bounds(0)
    assert SyncOptions().bounds(3).max_missed == 3
    assert SyncOptions(max_missed=0).bounds(3).max_missed == 0


def test_a_backlog_is_written_while_it_is_read_before_a_stream_is_followed(
    copy: OpenedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[int] = []
    wait = AheadBatch.wait

    def waiting(batch: AheadBatch) -> None:
        ahead.append(batch.until)
        wait(batch)

    monkeypatch.setattr(AheadBatch, "wait", waiting)
    remote = RecordedStream.of(messages(1, 10))
    turns = iter(range(100))

    def live() -> None:
        turn = next(turns)
        if turn == 5:
            remote.publish(messages(11, 12))
        if turn == 7:
            remote.publish(messages(13, 22))
        if turn > 14:
            remote.config["sealed"] = True

    remote.each_table = live
    assert follow_sync(copy, remote, SMALL).position == 22
    assert_equal(copy, remote)
    assert ahead[:3] == [4, 8, 10]
    assert ahead[-1] == 22
    assert 12 not in ahead


def test_a_thread_that_catches_up_ends_between_parts_and_leaves_no_file(
    copy: OpenedStream, tmp_path: Path
) -> None:
    remote = RecordedStream.of(messages(1, 40), most_rows=2)
    stop = Stop()
    turns = iter(range(100))

    def live() -> None:
        if next(turns) == 5:
            stop.ask(KeyboardInterrupt)

    remote.each_table = live
    done = follow_sync(copy, remote, SMALL, stop=stop)
    assert (done.messages, done.ended) == (8, "signal")
    files = copy.store.snapshot().files["path"].to_pylist()
    assert len(list(tmp_path.rglob("*.parquet"))) >= len(files) == 2
    assert len(list((Path(copy.root) / "messages").rglob("*.parquet"))) == len(files)
    assert run_sync(copy, remote).messages == 32


def test_a_first_sync_that_is_refused_before_a_message_comes_leaves_no_table(
    copy: OpenedStream,
) -> None:
    remote = RecordedStream.of(messages(1, 6))

    def refuse() -> None:
        raise UsageError("a permission is missing")

    remote.each_table = refuse
    with pytest.raises(UsageError, match="permission"):
        run_sync(copy, remote)
    assert not copy.store.exists()
    assert not Path(copy.root, "messages").exists()


@pytest.mark.parametrize("format_name", ["delta", "parquet"])
def test_a_first_batch_that_is_refused_leaves_an_empty_table_that_the_next_sync_goes_on_with(
    tmp_path: Path, format_name: str
) -> None:
    copy = opened(tmp_path, {**SYNCED, "format": format_name}).new_stream("ORDERS").opened
    remote = RecordedStream.of(messages(1, 6))
    tables = iter([(1, 2, 3), ()])
    remote.each_table = lambda: remote.without(*next(tables, ()))
    with pytest.raises(RefusedError, match=r"missed: 1 to 3 \(3\)"):
        run_sync(copy, remote)
    assert copy.store.snapshot().files.num_rows == 0
    assert not list(Path(copy.root, "messages").rglob("*.parquet"))
    again = opened(tmp_path, {**SYNCED, "format": format_name}).stream("ORDERS").opened
    assert run_sync(again, remote).messages == 3
    assert_equal(again, remote)
