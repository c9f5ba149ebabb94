"""Syncs from a recorded server: positions, refusals, gaps; tests/live/test_iggy.py has a real one."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.topic import Topic
from retention.context.context import OpenedStream
from retention.dialects.iggy import with_topic
from retention.errors import BusyError, RefusedError, UsageError
from retention.formats.iggy.polled import polled
from retention.ingest.sync.iggy.configuration import settings_there
from retention.ingest.sync.iggy.offsets import bring_readers
from retention.ingest.sync.iggy.run import follow_topic_sync, run_topic_sync
from retention.ingest.sync.iggy.session import TopicSyncOptions
from retention.ingest.sync.options import SyncBounds
from retention.stores.lease import lease
from tests.support.recorded_topic import STREAM, TOPIC, RecordedServer
from tests.support.topics import NAME, World, line

SMALL = SyncBounds(batch_messages=3)
SYNC = {"server": "127.0.0.1:1", "stream": STREAM, "topic": TOPIC}


@pytest.fixture
def world(tmp_path: Path, format_name: str) -> World:
    return World(tmp_path, format_name, {"sync": SYNC})


@pytest.fixture(params=["delta", "parquet"])
def format_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def copy(world: World) -> OpenedStream:
    return world.topic.opened


def held(copy: OpenedStream) -> dict[int, pa.Table]:
    rows = pa.concat_tables(Topic(copy, "local").messages())
    return {
        number: rows.filter(pa.compute.equal(rows["partition"], number)).drop_columns(["partition"])
        for number in sorted(set(rows["partition"].to_pylist()))
    }


def there(server: RecordedServer, stage: str) -> dict[int, pa.Table]:
    logs = server.recorded[stage]["logs"]
    tables = {
        int(number): pa.Table.from_batches([polled(base64.b64decode(log), int(number), 0, "").rows])
        for number, log in logs.items()
    }
    return {number: with_topic(rows, NAME) for number, rows in tables.items() if rows.num_rows}


def assert_equal(copy: OpenedStream, server: RecordedServer, stage: str) -> None:
    """The copy holds exactly the messages of the server, byte for byte."""
    ours, theirs = held(copy), there(server, stage)
    assert ours.keys() == theirs.keys()
    for number, rows in theirs.items():
        mine = ours[number].select(rows.column_names).cast(rows.schema)
        assert mine.equals(rows), number


def segments(copy: OpenedStream, partition: int) -> list[int]:
    files = copy.store.inventory(copy.store.snapshot()).files
    pairs = zip(files["partition"].to_pylist(), files["segment"].to_pylist(), strict=True)
    return sorted({segment for number, segment in pairs if number == partition})


def test_a_copy_has_the_servers_messages_in_bounded_commits_and_then_only_what_is_new(
    copy: OpenedStream,
) -> None:
    server = RecordedServer("first")
    done = run_topic_sync(copy, server.topic, SMALL)
    assert (done.messages, done.commits, done.behind, done.missed_count) == (9, 3, 0, 0)
    assert_equal(copy, server, "first")
    assert run_topic_sync(copy, server.topic).commits == 0
    server.stage = "more"
    assert run_topic_sync(copy, server.topic).messages == 36
    assert_equal(copy, server, "more")
    with pytest.raises(AssertionError):
        assert_equal(copy, server, "first")


@pytest.mark.parametrize("most", [1, 2, 5, 1_000])
def test_segments_are_the_servers_however_its_batches_are_cut(
    copy: OpenedStream, most: int
) -> None:
    server = RecordedServer("more", most_polled=most)
    done = run_topic_sync(copy, server.topic, SyncBounds(batch_messages=2 * most))
    assert done.messages == 45
    assert_equal(copy, server, "more")
    # The server's own: two segments of 11 messages of 100 KiB are full at 1 MiB.
    deleted = there(server, "deleted")[1]["seq"][0].as_py()
    assert segments(copy, 1)[2] == deleted
    assert segments(copy, 0) == [0]


def test_an_empty_topic_is_nothing_to_copy(copy: OpenedStream) -> None:
    done = run_topic_sync(copy, RecordedServer("empty").topic)
    assert (done.messages, done.commits, done.behind) == (0, 0, 0)


def test_a_topic_that_begins_late_keeps_its_offsets_and_misses_nothing(copy: OpenedStream) -> None:
    server = RecordedServer("deleted")
    assert run_topic_sync(copy, server.topic).missed_count == 0
    assert_equal(copy, server, "deleted")


def test_what_the_server_removed_first_is_refused_before_the_commit_and_then_accepted(
    copy: OpenedStream,
) -> None:
    server = RecordedServer("first")
    run_topic_sync(copy, server.topic)
    before = copy.store.snapshot().version
    server.stage = "deleted"
    first = there(server, "deleted")[1]["seq"][0].as_py()
    missed = first - 1
    with pytest.raises(RefusedError, match=f"--max-missed {missed}") as refused:
        run_topic_sync(copy, server.topic, SyncBounds(max_missed=missed - 1))
    assert f"partition 1: 1 to {first - 1} ({missed})" in str(refused.value)
    assert copy.store.snapshot().version == before
    done = run_topic_sync(copy, server.topic, SyncBounds(max_missed=missed))
    assert done.missed_count == missed
    assert done.as_json()["missed_ranges"] == [
        {"partition": 1, "first": 1, "last": first - 1, "count": missed}
    ]
    assert segments(copy, 1)[:2] == [0, first]
    assert run_topic_sync(copy, server.topic).missed_count == 0


def test_a_partition_that_the_topic_here_does_not_have_is_refused(copy: OpenedStream) -> None:
    server = RecordedServer("deleted")
    run_topic_sync(copy, server.topic)
    server.stage = "grown"
    with pytest.raises(RefusedError, match="write partitions: 3"):
        run_topic_sync(copy, server.topic)


def test_an_added_partition_is_copied_a_removed_one_is_told_and_a_new_one_in_its_place_is_refused(
    world: World,
) -> None:
    server = RecordedServer("deleted")
    run_topic_sync(world.topic.opened, server.topic)
    world.configure(partitions=3)
    server.stage = "grown"
    assert run_topic_sync(world.topic.opened, server.topic).messages == 1
    server.stage = "shrunk"
    done = run_topic_sync(world.topic.opened, server.topic)
    assert done.notes == [
        "partition 2 was deleted on the server; its messages up to offset 0 are kept here"
    ]
    server.stage = "grown again"
    with pytest.raises(
        RefusedError, match=r"partition 2 .* was deleted on the server and made anew"
    ):
        run_topic_sync(world.topic.opened, server.topic)


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ("purged", "and is empty on the server: the topic was purged there"),
        ("refilled", "is not the one that was copied: the topic was purged there"),
        ("made anew", r"was deleted and made anew \(created 2026-\S+Z, and the copied one 2026-"),
    ],
)
def test_a_topic_that_is_not_the_one_that_was_copied_is_refused_and_the_copy_stays(
    world: World, stage: str, reason: str
) -> None:
    server = RecordedServer("more")
    world.configure(partitions=3)
    copy = world.topic.opened
    run_topic_sync(copy, server.topic)
    before = copy.store.snapshot().version
    server.stage = stage
    with pytest.raises(RefusedError, match=reason):
        run_topic_sync(copy, server.topic)
    assert copy.store.snapshot().version == before


@pytest.mark.parametrize("stage", ["purged", "made anew"])
def test_a_topic_that_changes_between_a_poll_and_the_commit_is_refused(
    world: World, stage: str
) -> None:
    world.configure(partitions=3)
    server = RecordedServer("more")

    class Changing(RecordedServer):
        def request(self, code: int, body: bytes) -> bytes:
            answer = super().request(code, body)
            self.stage = stage if self.requests.count(100) else self.stage
            return answer

    changing = Changing("more", recorded=server.recorded)
    with pytest.raises(
        RefusedError, match=r"purged meanwhile, or .* in a crash; this batch was not"
    ):
        run_topic_sync(world.topic.opened, changing.topic, SMALL)
    assert not world.rows()


def test_messages_of_another_origin_are_refused(world: World) -> None:
    del world.said["sync"]
    world.configure()
    world.topic.publish([line("mine", partition=1)])
    with pytest.raises(RefusedError, match="it holds messages that no sync copied"):
        run_topic_sync(world.topic.opened, RecordedServer("first").topic)


def test_nobody_else_writes_to_a_synced_topic(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kept in step with a live server"):
        world.topic.publish([line("mine", partition=1)])
    with pytest.raises(UsageError, match="kept in step with a live server"):
        world.topic.import_iggy_log(tmp_path)


def test_one_sync_of_a_topic_runs_at_a_time(copy: OpenedStream) -> None:
    with (
        lease(copy.root, "sync", copy.clock),
        pytest.raises(BusyError, match="held by process"),
    ):
        run_topic_sync(copy, RecordedServer("first").topic)


def test_following_commits_what_comes_until_a_signal(copy: OpenedStream) -> None:
    server = RecordedServer("first")
    rounds: list[str] = []

    def along(info: Any) -> None:
        rounds.append(server.stage)
        if server.stage == "more":
            raise KeyboardInterrupt
        server.stage = "more"

    done = follow_topic_sync(copy, server.topic, SyncBounds(linger_s=0), along)
    assert (rounds, done.ended, done.messages) == (["first", "more"], "signal", 45)
    assert_equal(copy, server, "more")


def test_offsets_of_groups_and_named_consumers_come_and_hold_messages(world: World) -> None:
    server, copy = RecordedServer("more"), world.topic.opened
    assert bring_readers(copy, server.topic, server.topic.info(), ["worker"]) == 0
    run_topic_sync(copy, server.topic)
    info = server.topic.info()
    assert bring_readers(copy, server.topic, info, ["worker", "7"]) == 2
    assert sorted(each.offset for each in world.topic.offsets()) == [2, 3]
    assert world.topic.get_offset(0, "consumer", "worker").offset == 3
    before = copy.store.snapshot().counters.consumers
    bring_readers(copy, server.topic, info, ["worker", "7"])
    assert copy.store.snapshot().counters.consumers == before


def test_an_offset_above_the_copied_messages_is_stored_as_the_last_of_these(world: World) -> None:
    server, copy = RecordedServer("first"), world.topic.opened
    run_topic_sync(copy, server.topic, SyncBounds(batch_messages=2))
    server.stage = "more"
    world.topic.store_offset(0, "consumer", "worker", 5)
    bring_readers(copy, server.topic, server.topic.info(), ["worker"])
    assert world.topic.get_offset(0, "consumer", "worker").offset == 3


def test_bounds_below_their_least_value_are_refused() -> None:
    for wrong in (
        TopicSyncOptions(batch_messages=0),
        TopicSyncOptions(batch_bytes=0),
        TopicSyncOptions(max_missed=-1),
    ):
        with pytest.raises(UsageError, match="a batch has at least 1 message"):
            wrong.bounds(0)


def test_the_servers_settings_are_told_in_its_own_numbers() -> None:
    there_ = settings_there(RecordedServer("first").topic.info())
    assert there_["message_expiry"] == 3_600_000_000
    assert there_["segment_size"] == 1 << 20


def test_a_topic_with_the_rules_of_old_servers_is_refused(world: World) -> None:
    world.configure(profile="v8")
    with pytest.raises(RefusedError, match="profile v8 is for servers"):
        run_topic_sync(world.topic.opened, RecordedServer("first").topic)
