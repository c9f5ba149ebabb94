"""Crash scenarios of write paths, and a process that runs each case in its own fork.

The parent of the forks only imports; deltalake and Arrow start threads in the forks, where this is safe.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

import pandas  # type: ignore[import-untyped]  # noqa: F401  (what is loaded when needed, before the forks)
import pyarrow as pa
import pyarrow.acero
import pyarrow.dataset
from deltalake import DeltaTable, TableFeatures

import retention.stores.delta.store
import retention.stores.parquet.store
from retention.api.stream import Stream
from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.archive import digest_of
from retention.apply.orphans import orphans
from retention.apply.requested import remove_now
from retention.config import load
from retention.consumers.state import from_json
from retention.context.context import OpenedStream
from retention.context.position import Position, locate
from retention.core.message_rows import complete_rows, message_sizes
from retention.core.table_updates import (
    SetBatch,
    set_next_seqs,
    set_open_bases,
)
from retention.core.vector_paths import data_path
from retention.datafile.parquet import stats_table, write_messages
from retention.datafile.segment_writer import Staged, Staging, stage_rows, with_sequences
from retention.dialects.jetstream import JetStream
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.formats.nats.backup import RAW_ROWS, write_backup
from retention.history.runs import history_of
from retention.ingest import table_source
from retention.ingest.append import appending
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.mirror.origin import origins_of
from retention.ingest.mirror.run import run_mirror
from retention.ingest.sources import batches
from retention.ingest.sync.configuration import keep_configuration
from retention.ingest.sync.consumers import bring_consumers
from retention.ingest.sync.iggy.configuration import settings_there
from retention.ingest.sync.iggy.offsets import bring_readers
from retention.ingest.sync.iggy.run import run_topic_sync
from retention.ingest.sync.options import SyncBounds
from retention.ingest.sync.run import run_sync
from retention.ingest.table_source import TableSource, ingest
from retention.inspect.measures import measure
from retention.inspect.taken import Taken
from retention.layout.partitioner import TURN
from retention.planners import afresh
from retention.ports import Swap
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.requests import Drop, Purge
from retention.schemas.files import KEPT_IDS, LOGGED_FILES
from retention.storage import crash_points, files
from retention.storage.crash_points import Step
from retention.stores.archive_erasures import read_replacements
from retention.stores.archive_manifest import read_manifests
from retention.stores.claims import Claims
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from retention.stores.delta import returned
from retention.stores.kept_ids import RemovedIds
from retention.stores.layout import Layout
from retention.stores.offset_table import OffsetTable
from retention.stores.parquet import listing
from retention.stores.parquet.log import LIST_EVERY, CommitEntry, ParquetLog
from retention.stores.sidecar.last_verification import last_verification
from retention.stores.sidecar.stats_cache import MERGE_ABOVE, StatisticsCache
from retention.stores.sidecar.versioned_document import KEPT
from retention.verify import run as verification
from tests.support.crew import serve
from tests.support.laying import SECOND, START, File, Laid, even_segments, lay, warehouse_with
from tests.support.list_reader import reading
from tests.support.overwritten_log import newest, overwrite
from tests.support.reclaiming import reclaim, reclaim_left, with_dead_files, with_leftovers
from tests.support.recorded_stream import RecordedStream, consumer, messages
from tests.support.recorded_topic import RecordedServer
from tests.support.topic_crashes import NAME as TOPIC
from tests.support.topic_crashes import import_logs, rolling, with_logs
from tests.support.topic_crashes import publish as publish_clicks
from tests.support.topics import World

TWICE = os.environ.get("RETENTION_CRASHES") == "twice"
"""Whether recoveries are also killed: `make long NAME=crash`."""
_ENGINE = str(Path(retention.__file__).parent)
NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
ODD_NAME = "räume"
STATE = {
    "delivered": {"consumer_seq": 4, "stream_seq": 9},
    "ack_floor": {"consumer_seq": 2, "stream_seq": 5},
    "pending": {"7": {"Sequence": 3, "Timestamp": START}},
}
CONSUMERS = {"billing": {"config": {"ack_policy": "explicit"}, "state": STATE}}


@dataclass(frozen=True)
class Scenario:
    """A command, its initial warehouse, and its stream."""

    prepare: Callable[[Path, str], None]
    act: Callable[[Path], None]
    stream: str = "ORDERS"


SPENT_ID = pa.table(
    [pa.array([bytes(16)], pa.binary(16)), pa.array([1]), pa.array([START - 1_800 * SECOND])],
    schema=KEPT_IDS,
)
"""The id of a message after its deduplication window."""
_SOON = {"Nats-TTL": "1s"}


def opened_at(folder: Path) -> Warehouse:
    return open_warehouse(folder / "retention.yaml", engine="local", clock=lambda: NOW)


def empty(folder: Path, format_: str) -> None:
    warehouse_with(folder, format_, NOW, segment_span="10s")


def written(folder: Path, format_: str) -> None:
    streams = warehouse_with(folder, format_, NOW, segment_span="10s")
    lay(streams.stream("ORDERS").opened, even_segments(2, 10))


def with_backup(folder: Path, format_: str) -> None:
    empty(folder, format_)
    seqs = range(3, 40, 2)
    rows = pa.table(
        {
            "seq": list(seqs),
            "subject": [f"s.{seq % 3}" for seq in seqs],
            "ts_ns": [START + seq * SECOND for seq in seqs],
            "headers": [None for _ in seqs],
            "payload": [b"x" for _ in seqs],
        },
        schema=RAW_ROWS,
    )
    counted = message_sizes(rows["subject"], rows["headers"], rows["payload"], "file")
    state = {
        "messages": len(seqs),
        "first_seq": 3,
        "last_seq": 41,
        "bytes": sum(counted.to_pylist()),
    }
    write_backup(folder / "ORDERS.arc", state, CONSUMERS, [rows])


def due(folder: Path, format_: str) -> None:
    """Whole segments to drop, files to rewrite, overlapping files, files of another writer, and a
    log and a cache due for a merge."""
    streams = warehouse_with(folder, format_, NOW, max_age="60s", max_msgs_per_subject=9)
    opened = streams.stream("ORDERS").opened
    first, *rest = (replace(file, messages=named(file.messages)) for file in even_segments(4, 10))
    RemovedIds(Layout(opened.root, opened.name)).keep(SPENT_ID, START - 3_600 * SECOND)
    halves = [File(first.base, first.messages[at::2]) for at in (0, 1)]
    lay(opened, [*halves, *rest])
    layout = Layout(opened.root, opened.name)
    if format_ == "parquet":
        log = ParquetLog(layout)
        for version in range(2, LIST_EVERY - 1):
            log.append(CommitEntry(version, 0))
        write_messages(layout.live("partition=0/segment=31/theirs.parquet"), _rows(41, 3, START))
        return
    for _ in range(8):
        nothing = Swap(LOGGED_FILES.empty_table(), stats_table([]), {"run": "nothing"})
        opened.store.commit(nothing, opened.store.snapshot())
    known = opened.store.inventory(opened.store.snapshot()).files
    for number in range(MERGE_ABOVE):
        StatisticsCache(layout, lambda number=number: number).add(known.slice(number % 4, 1))  # type: ignore[misc]


def named(messages: Sequence[Laid]) -> list[Laid]:
    """The messages, with ids."""
    block = "NATS/1.0\r\nNats-Msg-Id: m{}\r\n\r\n"
    return [replace(one, headers=block.format(one.seq).encode()) for one in messages]


def retried(folder: Path, stream: str) -> list[Any]:
    """The answers to a second publish of messages, stored or not."""
    lines = [
        {"subject": "s.1", "headers": {"Nats-Msg-Id": f"m{seq}"}, "ts_ns": START + 45 * SECOND}
        for seq in (1, 12, 17, 22, 40)
    ]
    given = opened_at(folder).new_stream(stream).publish(json.dumps(one).encode() for one in lines)
    assert given.answers.duplicates[0]
    return [(ack.seq, ack.duplicate) for ack in given.acks()]


def replaying(folder: Path, format_: str) -> None:
    """Two passes have replayed, and the grace of the first one's record is over."""

    def at(second: int, max_msgs: int) -> Stream:
        limits: dict[str, Any] = {
            "mode": "replay",
            "max_msgs": max_msgs,
            "segment_span": "10s",
            "grace": "10s",
        }
        now_ns = START + second * SECOND
        return warehouse_with(folder, format_, now_ns, **limits).stream("ORDERS")

    lay(at(40, 17).opened, even_segments(3, 10))
    at(40, 17).plan().apply()
    at(60, 14).plan().apply()
    at(100, 9)


def replayed(folder: Path, format_: str) -> None:
    replaying(folder, format_)
    apply(folder)


def due_with_archive(folder: Path, format_: str) -> None:
    """A segment to drop and one to rewrite, both archived first."""
    streams = warehouse_with(folder, format_, NOW, max_age="60s", archive="archive")
    lay(streams.stream("ORDERS").opened, even_segments(4, 10))


def archived(folder: Path, format_: str) -> None:
    due_with_archive(folder, format_)
    apply(folder)


def restore(folder: Path) -> None:
    opened_at(folder).stream("ORDERS").restore()


def restore_elsewhere(folder: Path) -> None:
    warehouse = opened_at(folder)
    warehouse.stream("ORDERS").restore(into=warehouse.new_stream("BACK"))


def idle(folder: Path, format_: str) -> None:
    """Nothing is due, and no pass has run yet."""
    streams = warehouse_with(folder, format_, NOW, max_age="1h")
    lay(streams.stream("ORDERS").opened, even_segments(4, 10))


def dying(folder: Path, format_: str) -> None:
    """The last values of two subjects are due, one of them in a file that is kept."""
    warehouse_with(
        folder, format_, NOW, allow_msg_ttl=True, subject_delete_marker_ttl="1h", segment_span="10s"
    )
    lines = [
        {"subject": f"s.{n}", "data": "x", "ts_ns": START + n * SECOND, "headers": headers}
        for n, headers in enumerate([_SOON, _SOON, {}, _SOON, {}])
    ]
    stream = opened_at(folder).new_stream("ORDERS")
    stream.publish([json.dumps(line).encode() for line in lines], "app", 1)
    stream.publish([json.dumps(lines[0] | {"ts_ns": START + 20 * SECOND}).encode()], "app", 2)


def due_with_another_grace(folder: Path, format_: str) -> None:
    """A segment is due, and the grace of removed files has changed since the table was created."""
    streams = warehouse_with(folder, format_, NOW)
    lay(streams.stream("ORDERS").opened, even_segments(3, 10))
    warehouse_with(folder, format_, NOW, max_age="60s", grace="3d")


def with_returned(folder: Path, format_: str) -> None:
    """Another writer has restored files removed by a quiet pass; only the table's owner can change its grace."""
    streams = warehouse_with(folder, format_, NOW, max_msgs=17, quiet=True)
    lay(streams.stream("ORDERS").opened, even_segments(3, 10))
    table = folder / "streams" / "ORDERS" / "messages"
    if format_ == "delta":
        DeltaTable(table).alter.add_feature(
            TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True
        )
        under_way = DeltaTable(table)
    apply(folder)
    if format_ == "delta":
        under_way.update({"msg_id": "'new'"}, predicate="seq in (1, 11)")
    warehouse_with(folder, format_, NOW, max_msgs=17, quiet=True, grace="3d")


def repair_returned(folder: Path) -> None:
    """Repair the stream; then other commits follow, until the checked position of the log is saved."""
    stream = opened_at(folder).stream("ORDERS")
    stream.repair_returned_messages().apply()
    entries = sorted((folder / "streams" / "ORDERS" / "messages" / "_delta_log").glob("*.json"))
    if entries:
        newest = int(entries[-1].stem)
        for number in range(newest + 1, newest + returned.LOOKED + 2):
            entry = entries[-1].with_stem(f"{number:020d}")
            entry.write_text('{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}')
        stream.opened.store.snapshot()


def few_due(folder: Path, format_: str) -> None:
    """A few messages of one file are due; in a Delta table, a vector hides them."""
    vectors = format_ == "delta"
    streams = warehouse_with(folder, format_, NOW, max_msgs_per_subject=12, vectors=vectors)
    lay(streams.stream("ORDERS").opened, even_segments(4, 10))


def few_hidden(folder: Path, format_: str) -> None:
    few_due(folder, format_)
    apply(folder)


def applied(folder: Path, format_: str) -> None:
    due(folder, format_)
    apply(folder)


def publish(folder: Path) -> None:
    """Publish two batches; the second goes on from the commit of the first."""
    lines = [
        json.dumps({"subject": f"s.{n % 3}", "data": "x", "ts_ns": START + (20 + n) * SECOND})
        for n in range(25)
    ]
    orders = opened_at(folder).new_stream("ORDERS")
    orders.publish([line.encode() for line in lines[:20]], "app", 7)
    orders.publish([line.encode() for line in lines[20:]], "app", 8)


def rollable(folder: Path, format_: str) -> None:
    streams = warehouse_with(folder, format_, NOW, segment_span="10s", allow_rollup_hdrs=True)
    lay(streams.stream("ORDERS").opened, even_segments(3, 10))


def roll_up(folder: Path) -> None:
    """Publish messages; one of them rolls up its subject, in every file and in its own batch."""
    asking = {0: {"Nats-Msg-Id": "m1"}, 2: {"Nats-Rollup": "sub"}}
    lines = [
        json.dumps({"subject": f"s.{n % 2}", "data": "x", "headers": asking.get(n, {})})
        for n in range(4)
    ]
    opened_at(folder).new_stream("ORDERS").publish([line.encode() for line in lines], "app", 7)


def with_origin(folder: Path, format_: str, **limits: Any) -> None:
    """ORDERS is still empty; its origin has three segments."""
    streams = warehouse_with(folder, format_, NOW, segment_span="10s", **limits)
    lay(streams.new_stream("ORIGIN").opened, even_segments(3, 10))


def mirroring(folder: Path, format_: str) -> None:
    with_origin(folder, format_, subjects=[], mirror={"name": "ORIGIN"})


def sourcing(folder: Path, format_: str) -> None:
    with_origin(folder, format_, sources=[{"name": "ORIGIN", "filter_subject": "s.1"}])


def carry(folder: Path) -> None:
    """Carry the messages over in two parts."""
    warehouse = opened_at(folder)
    target = warehouse.new_stream("ORDERS").opened
    origins = list(origins_of(target.config, lambda name: warehouse.stream(name).opened))
    run_mirror(target, origins, NOW, part_bytes=400)


def syncing(folder: Path, format_: str) -> None:
    """ORDERS is still empty, and has a server."""
    warehouse_with(folder, format_, NOW, segment_span="10s", subjects=[], sync={"stream": "S"})


def sync(folder: Path) -> None:
    """Copy a server's messages in three commits, with its consumer and its configuration."""
    opened = opened_at(folder).new_stream("ORDERS").opened
    remote = RecordedStream.of(
        messages(1, 14), most_rows=4, known_consumers=[consumer("billing", 7)]
    )
    remote.without(3, 4, 14)
    keep_configuration(opened, remote.config)
    bring = partial(bring_consumers, opened, remote)
    run_sync(opened, remote, SyncBounds(batch_messages=6), bring)


def publish_oddly(folder: Path) -> None:
    line = json.dumps({"subject": "a", "data": "x", "ts_ns": START}).encode()
    opened_at(folder).new_stream(ODD_NAME).publish([line], "app", 1)


def import_backup(folder: Path) -> None:
    opened_at(folder).new_stream("ORDERS").import_nats_backup(folder / "ORDERS.arc")


def apply(folder: Path) -> None:
    [outcome] = opened_at(folder).apply(as_of=AS_OF)
    if outcome.error is not None:
        raise outcome.error


def hold_and_apply(folder: Path) -> None:
    """Place a legal hold, unless an earlier process has done so, then apply."""
    warehouse = opened_at(folder)
    if not warehouse.holds():
        warehouse.hold("ORDERS", reason="case 41", ranges=[(n, n) for n in range(5, 3_005, 2)])
    apply(folder)


def held(folder: Path, format_: str) -> None:
    """Messages due, some under a legal hold."""
    due(folder, format_)
    opened_at(folder).hold("ORDERS", reason="case 41", to_seq=14)


def release_and_apply(folder: Path) -> None:
    """Release the legal hold, unless an earlier process has done so, then apply."""
    warehouse = opened_at(folder)
    for hold in warehouse.holds():
        try:
            warehouse.release_hold(hold.id, reason="closed")
        except UsageError as error:
            # Its end was in the ledger alone.
            assert "is released already" in str(error)  # noqa: PT017
    apply(folder)


def held_until(folder: Path, format_: str) -> None:
    """Messages due, some under a legal hold whose time is over."""
    due(folder, format_)
    earlier = open_warehouse(
        folder / "retention.yaml", engine="local", clock=lambda: NOW - 10 * SECOND
    )
    earlier.hold("ORDERS", reason="case 41", to_seq=14, until=NOW - SECOND)


def held_by_line(folder: Path, format_: str) -> None:
    """Messages due, some under a legal hold of the configuration that no record has yet."""
    due(folder, format_)
    place = folder / "retention.yaml"
    content = json.loads(place.read_text(encoding="utf-8"))
    content["streams"][0]["holds"] = [{"reason": "case 41", "to_seq": 14}]
    place.write_text(json.dumps(content), encoding="utf-8")


def with_ledger(prepare: Callable[[Path, str], None], folder: Path, format_: str) -> None:
    """A prepared stream, and the configuration of a ledger, which is empty."""
    prepare(folder, format_)
    place = folder / "retention.yaml"
    content = json.loads(place.read_text(encoding="utf-8"))
    place.write_text(json.dumps(content | {"ledger": "ledger"}), encoding="utf-8")


def put_back(folder: Path, format_: str) -> None:
    """A stream as before an erasure and a legal hold, which are in the ledger."""
    with_ledger(due, folder, format_)
    backup = folder.with_name(f"{folder.name}.backup")
    shutil.copytree(folder, backup, symlinks=True)
    opened_at(folder).hold("ORDERS", reason="case 41", to_seq=14)
    erase(folder)
    shutil.copytree(folder / "ledger", backup / "ledger")
    shutil.rmtree(folder)
    backup.rename(folder)


def compacted_over(folder: Path, format_: str) -> None:
    """A run, followed by a merge of all remaining files, and a later run that removed more."""
    settings: dict[str, Any] = {"compact": {"min_files": 2, "dead_share": 1}, "segment_span": "off"}
    streams = warehouse_with(folder, format_, NOW, max_msgs_per_subject=9, **settings)
    lay(streams.stream("ORDERS").opened, even_segments(4, 10))
    apply(folder)
    compact(folder)
    warehouse_with(folder, format_, NOW, max_msgs_per_subject=6, **settings)
    apply(folder)


def scattered(folder: Path, format_: str) -> None:
    """A segment of many small files, nearly empty neighbours, and the open segment."""
    settings: dict[str, Any] = {"compact": {"min_files": 2}, "segment_span": "off"}
    files = [File(1, [Laid(seq)]) for seq in (1, 2, 3)]
    files += [File(base, [Laid(base)]) for base in (11, 21, 31)]
    lay(warehouse_with(folder, format_, NOW, **settings).stream("ORDERS").opened, files)


def compact(folder: Path) -> None:
    [outcome] = opened_at(folder).compact().apply()
    if outcome.error is not None:
        raise outcome.error


def apply_with_ledger(folder: Path) -> None:
    """Apply with an inventory cache or a record of directories, even for few and young files; then measure."""
    afresh.MANY_FILES = listing.WORTH_FILES = 1
    listing.COARSE_NS = -(10**9)
    apply(folder)
    measure(opened_at(folder).stream("ORDERS").opened, NOW)


def undo(folder: Path) -> None:
    warehouse = opened_at(folder)
    applied = [one["run"] for one in warehouse.history(["ORDERS"]) if one["kind"] == "apply"]
    try:
        warehouse.undo(min(applied, default="the run that nobody sees"))
    except UsageError as error:
        assert "was undone already" in str(error)  # noqa: PT017


def purge(folder: Path) -> None:
    """First purge some rows of many files, then everything, with the next sequence moved past unstored sequences."""
    opened = opened_at(folder).stream("ORDERS").opened
    with Engines("local") as engines:
        for request in (Purge("s.1", keep=2), Purge(seq=60)):
            remove_now(opened, request, engines)


def erase(folder: Path) -> None:
    """Erase messages, and the files that earlier runs left of them."""
    done = opened_at(folder).stream("ORDERS").erase(seqs=(17, 22), reason="asked for").apply()
    assert done.is_done, done


def naming(folder: Path, format_: str) -> None:
    """Runs and an ended legal hold whose records name a subject."""
    applied(folder, format_)
    warehouse = opened_at(folder)
    placed = warehouse.hold("ORDERS", subject="s.1", reason="case of s.1")
    warehouse.release_hold(placed.id, reason="closed")
    warehouse.stream("ORDERS").purge("s.1", keep=3).apply()


def erase_subject(folder: Path) -> None:
    """Erase everything on a subject, and what names it."""
    done = opened_at(folder).stream("ORDERS").erase("s.1", reason="asked for").apply()
    assert done.is_done, done


def pause_and_resume(folder: Path) -> None:
    """Pause removals, and allow them again."""
    warehouse = opened_at(folder)
    warehouse.pause(["ORDERS"], reason="migration")
    warehouse.resume(["ORDERS"], reason="migrated")


def lose_a_race(folder: Path) -> None:
    """Append while a rival without a lease commits first."""
    mine, rival = (opened_at(folder).new_stream("ORDERS").opened for _ in range(2))

    with appending(mine, BatchIdentity("mine", 1)) as append:
        for attempt in append.attempts():
            staged = _staged(mine, attempt.position, attempt.staging, START + 30 * SECOND)
            at = locate(rival)
            if "rival" not in at.snapshot.counters.batches:
                theirs = _staged(rival, at, Staging(rival.store), START + 20 * SECOND)
                swap = Swap(
                    LOGGED_FILES.empty_table(),
                    stats_table(theirs.stats),
                    {"run": "rival"},
                    updates=[
                        *set_next_seqs(theirs.next_seq),
                        *set_open_bases(theirs.open_base),
                        SetBatch("rival", 1),
                    ],
                )
                rival.store.commit(swap, at.snapshot)
            append.commit(staged)


def _staged(opened: OpenedStream, position: Position, staging: Staging, first_ns: int) -> Staged:
    tail = position.tail(0)
    rows = with_sequences([_given(5, first_ns)], tail.next_seq)
    return stage_rows(staging, rows, JetStream.of(opened.config).ends(tail))


def with_consumers(folder: Path, format_: str) -> None:
    """A consumer has settled whole segments and a part of one; the configuration edits it and adds another."""
    listed = [
        {"durable_name": "billing", "ack_policy": "explicit", "description": "edited"},
        {"durable_name": "late", "ack_policy": "explicit", "deliver_policy": "new"},
    ]
    streams = warehouse_with(
        folder, format_, NOW, retention="interest", max_msgs=12, consumers=listed
    )
    opened = streams.stream("ORDERS").opened
    lay(opened, even_segments(4, 10))
    config = {"durable_name": "billing", "ack_policy": "explicit"}
    pending = {"24": {"Sequence": 24, "Timestamp": START}}
    places = {name: {"consumer_seq": at, "stream_seq": at} for name, at in _PLACES.items()}
    billing = ConsumerRecord("billing", config, from_json(places | {"pending": pending}))
    table = ConsumerTable(opened.root)
    for version in range(KEPT):
        table.update("billing", lambda _, at=version: replace(billing, folded={"acks": at}))  # type: ignore[misc]


_PLACES = {"delivered": 26, "ack_floor": 20}


def with_acks(folder: Path, format_: str) -> None:
    """Two consumers with a folded part of the log; a third consumer is configured but does not exist yet."""
    streams = warehouse_with(folder, format_, NOW, retention="interest")
    stream = streams.stream("ORDERS")
    lay(stream.opened, even_segments(4, 10))
    for name in ("audit", "billing"):
        stream.consumers.add({"durable_name": name, "ack_policy": "explicit"})
    lines = [
        json.dumps({"subject": f"$JS.ACK.ORDERS.{name}.1.{seq}.{seq}.{START}.0"}) + "\n"
        for seq in range(1, 20)
        for name in ("audit", "billing", "late")
    ]
    log = folder / "acks.jsonl"
    log.write_text("".join(lines[:30]))
    stream.consumers.fold(str(log), name="acks")
    log.write_text("".join(lines))
    late = {"durable_name": "late", "ack_policy": "explicit"}
    warehouse_with(folder, format_, NOW, retention="interest", consumers=[late])


def fold(folder: Path) -> None:
    opened_at(folder).stream("ORDERS").consumers.fold(str(folder / "acks.jsonl"), name="acks")


def syncing_topic(folder: Path, format_: str) -> None:
    """A topic that is still empty, and has a server."""
    World(folder, format_, {"name": TOPIC, "sync": {"server": "h:1", "stream": "shop"}})


def sync_topic(folder: Path) -> None:
    """Copy a server's messages in several commits, with its settings and a consumer's offsets."""
    opened = opened_at(folder).topic(TOPIC).opened
    remote = RecordedServer("more").topic
    bring = partial(bring_readers, opened, remote, consumers=["worker"])
    run_topic_sync(opened, remote, SyncBounds(batch_messages=20), bring)
    keep_configuration(opened, settings_there(remote.info()))


def import_topic(folder: Path) -> None:
    import_logs(opened_at(folder), folder)


def with_topic(folder: Path, format_: str) -> None:
    with_logs(folder, format_)
    import_topic(folder)


def with_updated_topic(folder: Path, format_: str) -> None:
    """A topic with a configuration changed since its creation, and without one of its settings."""
    with_topic(folder, format_)
    place = folder / "retention.yaml"
    config = json.loads(place.read_text())
    del config["topics"][0]["segment_size"]
    config["topics"][0] |= {"message_expiry": "30s", "max_topic_size": "2GiB"}
    place.write_text(json.dumps(config), encoding="utf-8")


def go_back(folder: Path) -> None:
    """One reader rewinds its offset, another is deleted."""
    topic = opened_at(folder).topic(TOPIC)
    topic.store_offset(0, "consumer", "7", 3)
    try:
        topic.delete_offset(1, "group", "2")
    except UsageError as error:
        assert "has stored no offset" in str(error)  # noqa: PT017


def delete_segments(folder: Path) -> None:
    """Delete all sealed segments; one of them is held."""
    opened = opened_at(folder).topic(TOPIC).opened
    with Engines("local") as engines:
        remove_now(opened, DeleteSegments(0, 99), engines)


def with_segments_deleted(folder: Path, format_: str) -> None:
    with_topic(folder, format_)
    delete_segments(folder)


def purge_topic(folder: Path) -> None:
    opened = opened_at(folder).topic(TOPIC).opened
    with Engines("local") as engines:
        remove_now(opened, Purge(), engines)


def to_drop(folder: Path, format_: str) -> None:
    """A stream with files rewritten by a pass, and a consumer."""
    applied(folder, format_)
    opened_at(folder).stream("ORDERS").consumers.add({"durable_name": "audit"})


def drop(folder: Path) -> None:
    opened = opened_at(folder).stream("ORDERS").opened
    with Engines("local") as engines:
        try:
            remove_now(opened, Drop(), engines)
        except UsageError as error:
            assert "was dropped already" in str(error)  # noqa: PT017


def with_dropped(folder: Path, format_: str) -> None:
    to_drop(folder, format_)
    drop(folder)


def begin_anew(folder: Path) -> None:
    """The first write after a drop, then a consumer with the name of one of the dropped table."""
    publish(folder)
    opened_at(folder).stream("ORDERS").consumers.add({"durable_name": "audit"})


def undo_drop(folder: Path) -> None:
    warehouse = opened_at(folder)
    runs = [one["run"] for one in warehouse.history(["ORDERS"]) if one["kind"] == "drop"]
    try:
        warehouse.undo(min(runs))
    except UsageError as error:
        assert "was undone already" in str(error)  # noqa: PT017


def with_topic_purged(folder: Path, format_: str) -> None:
    with_topic(folder, format_)
    purge_topic(folder)


def undo_on_topic(kind: str, folder: Path) -> None:
    warehouse = opened_at(folder)
    runs = [one["run"] for one in warehouse.history([TOPIC]) if one["kind"] == kind]
    try:
        warehouse.undo(min(runs))
    except UsageError as error:
        assert "was undone already" in str(error)  # noqa: PT017


def publish_to_topic(folder: Path) -> None:
    publish_clicks(folder, NOW)


def with_readers(folder: Path, format_: str) -> None:
    with_topic(folder, format_)
    opened_at(folder).topic(TOPIC).store_offset(1, "group", "2", 1)


def with_source(folder: Path, format_: str) -> None:
    """A directory with one batch per file."""
    written(folder, format_)
    (folder / "source").mkdir()
    for name in "ab":
        (folder / "source" / f"{name}.json").write_text(f"{name}1\n{name}2\n")


def take_source(folder: Path) -> None:
    """Ingest the source, even if a copy of the folder has ingested a part of it."""
    batches.MOST_FILES = 1
    table_source._reading = reading  # type: ignore[assignment]
    source = TableSource(str(folder / "source"), "json", skip=frozenset(["table"]))
    ingest(opened_at(folder).new_stream("ORDERS").opened, source)


def with_lost_commit(folder: Path, format_: str) -> None:
    """A publish with its log entry overwritten by Spark, if the format allows it."""
    written(folder, format_)
    publish(folder)
    if format_ == "delta":
        warehouse = opened_at(folder)
        overwrite(warehouse, newest(warehouse))


def repair_lost_commit(folder: Path) -> None:
    opened_at(folder).stream("ORDERS").repair_lost_commits().apply()


def verifiable(folder: Path, format_: str) -> None:
    """A file without a digest, and a removed file that is damaged."""
    applied(folder, format_)
    opened = opened_at(folder).stream("ORDERS").opened
    snapshot = opened.store.snapshot()
    live = {data_path(path) for path in snapshot.files["path"].to_pylist()}
    described = opened.store.inventory(snapshot).files
    files.delete([opened.store.data_files(described)[0].digest_location])
    removed = [
        file
        for below in ("messages", "_retention/trash")
        for file in sorted((Path(opened.root) / below).rglob("partition=*/**/*.parquet"))
        if file.relative_to(Path(opened.root) / below).as_posix() not in live
    ]
    removed[0].write_bytes(bytes(removed[0].stat().st_size))


def verify(folder: Path) -> None:
    """Verify one file a round, and record the digest that is missing."""
    verification.TASK_FILES = verification.ROUND_TASKS = 1
    opened_at(folder).stream("ORDERS").verify(record=True)


def verified(root: str) -> dict[str, Any]:
    """The record of the last verification without its times, and whether it left progress."""
    last = last_verification(root)
    found = {} if last is None else vars(replace(last, started_ns=0, ended_ns=0))
    return {**found, "progress": files.names(f"{root}/_retention/verifying")}


SCENARIOS = {
    "publish": Scenario(written, publish),
    "roll-up": Scenario(rollable, roll_up),
    "first-publish": Scenario(empty, publish_oddly, ODD_NAME),
    "race": Scenario(written, lose_a_race),
    "import": Scenario(with_backup, import_backup),
    "mirror": Scenario(mirroring, carry),
    "sync": Scenario(syncing, sync),
    "apply": Scenario(due, apply),
    "release": Scenario(with_consumers, apply),
    "fold": Scenario(with_acks, fold),
    "marking-apply": Scenario(dying, apply),
    "archive": Scenario(due_with_archive, apply),
    "restore": Scenario(archived, restore),
    "restore-as": Scenario(archived, restore_elsewhere, "BACK"),
    "idle-apply": Scenario(idle, apply_with_ledger),
    "changed-grace": Scenario(due_with_another_grace, apply),
    "repair-returned": Scenario(with_returned, repair_returned),
    "compact": Scenario(scattered, compact),
    "undo": Scenario(applied, undo),
    "purge": Scenario(due, purge),
    "erase": Scenario(applied, erase),
}
SCENARIOS["erase-archived"] = Scenario(archived, erase)
SCENARIOS["erase-subject"] = Scenario(naming, erase_subject)
SCENARIOS["replay"] = Scenario(replaying, apply)
SCENARIOS["undo-replay"] = Scenario(replayed, undo)
SCENARIOS["pause"] = Scenario(due, pause_and_resume)
SCENARIOS["hold"] = Scenario(due, hold_and_apply)
SCENARIOS["release-hold"] = Scenario(held, release_and_apply)
SCENARIOS["expire-hold"] = Scenario(held_until, apply)
SCENARIOS["configured-hold"] = Scenario(held_by_line, apply)
SCENARIOS["ledger-hold"] = Scenario(partial(with_ledger, due), hold_and_apply)
SCENARIOS["ledger-release"] = Scenario(partial(with_ledger, held), release_and_apply)
SCENARIOS["ledger-erase"] = Scenario(partial(with_ledger, due), erase)
SCENARIOS["ledger-replay"] = Scenario(put_back, apply)
SCENARIOS["hide"] = Scenario(few_due, apply)
SCENARIOS["undo-hidden"] = Scenario(few_hidden, undo)
SCENARIOS["undo-compacted"] = Scenario(compacted_over, undo)
SCENARIOS["reclaim-leftovers"] = Scenario(with_leftovers, reclaim_left)
SCENARIOS["reclaim"] = Scenario(with_dead_files, reclaim)
SCENARIOS["sync-topic"] = Scenario(syncing_topic, sync_topic, TOPIC)
SCENARIOS["import-iggy-log"] = Scenario(with_logs, import_topic, TOPIC)
SCENARIOS["store-offset"] = Scenario(with_readers, go_back, TOPIC)
SCENARIOS["delete-segments"] = Scenario(with_topic, delete_segments, TOPIC)
SCENARIOS["undo-delete-segments"] = Scenario(
    with_segments_deleted, partial(undo_on_topic, "delete_segments"), TOPIC
)
SCENARIOS["publish-topic"] = Scenario(rolling, publish_to_topic, TOPIC)
SCENARIOS["seal-topic"] = Scenario(rolling, apply, TOPIC)
SCENARIOS["purge-topic"] = Scenario(with_topic, purge_topic, TOPIC)
SCENARIOS["import-purged"] = Scenario(with_topic_purged, import_topic, TOPIC)
SCENARIOS["undo-purge-topic"] = Scenario(with_topic_purged, partial(undo_on_topic, "purge"), TOPIC)
SCENARIOS["drop"] = Scenario(to_drop, drop)
SCENARIOS["begin-anew"] = Scenario(with_dropped, begin_anew)
SCENARIOS["undo-drop"] = Scenario(with_dropped, undo_drop)
SCENARIOS["update-topic"] = Scenario(with_updated_topic, apply, TOPIC)
SCENARIOS["apply-topic"] = Scenario(with_topic, apply, TOPIC)
SCENARIOS["repair-lost-commit"] = Scenario(with_lost_commit, repair_lost_commit)
SCENARIOS["verify"] = Scenario(verifiable, verify)
SCENARIOS["ingest"] = Scenario(with_source, take_source)
if TWICE:
    SCENARIOS["source"] = Scenario(sourcing, carry)


def _taken(opened: OpenedStream, runs: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The ranges removed by runs, by their records or by evidence: partition, first and last sequence, messages."""
    names = ["partition", "first_seq", "last_seq", "messages"]
    taken = (Taken(opened).of_run(run) for run in runs)
    tables = (table for by_run in taken if by_run is not None for table in by_run.tables())
    return sorted(
        tuple(row.values()) for table in tables for row in table.select(names).to_pylist()
    )


def outcome_of(folder: Path, scenario: Scenario) -> dict[str, Any]:
    """The outcome that must not depend on a kill, and `orphans`, which may differ."""
    stream = opened_at(folder).new_stream(scenario.stream)
    opened = stream.opened
    history = history_of(opened.warehouse, opened.name)
    snapshot = opened.store.snapshot()
    counters = snapshot.counters
    offsets = OffsetTable(opened.root).read().counting(counters)
    left = orphans(opened)
    ended = [record for record in history.outcomes() if record.is_done]
    found = {
        "messages": digest(stream),
        "properties": properties_of(folder, opened.name),
        "next_seq": [counters.next_seq.get(partition) for partition in range(2)],
        "open_base": [counters.open_base.get(partition) for partition in range(2)],
        "turn": counters.batches.get(TURN),
        "batches": {
            name: counters.batches.get(name)
            for name in ("app", "mine", "rival", "mirror", "nats-sync", "iggy-sync")
        },
        "consumers": [
            (
                one.consumer,
                one.revision,
                one.counted,
                dict(one.config),
                one.state.as_json(),
                one.folded,
            )
            for one in ConsumerTable(opened.root).live(counters)
        ],
        "edits": counters.consumers > 0,
        "purged": counters.epoch > 0,
        "barriers": list(offsets.barriers.items()),
        "asked": list(offsets.watermarks.items()),
        "holds": [hold.messages.ranges.tolist() for hold in opened_at(folder).holds([opened.name])],
        "counted_holds": counters.holds,
        "unfinished": history.unfinished(),
        "claimed": sorted(Claims(Layout(opened.root, opened.name)).claimed()),
        "removed": sum(record.removed_messages for record in ended),
        "restored": sum(record.as_json().get("restored_messages", 0) for record in ended),
        "taken": _taken(opened, [record.run for record in ended]),
        "kept": _kept(folder, opened.name),
        "accounted": _accounted(folder, {orphan.location for orphan in left}),
        "orphans": sorted(orphan.what for orphan in left),
    }
    if scenario.act is apply:
        apply(folder)
        found["again"] = next(iter(history.outcomes())).removed_messages
    if scenario.act is verify:
        found["verified"] = verified(opened.root)
    if scenario.prepare in (due, applied, rollable):
        found["retried"] = retried(folder, scenario.stream)
    return found


def properties_of(folder: Path, stream: str) -> dict[str, str]:
    """The properties of a Delta table."""
    messages = folder / "streams" / stream / "messages"
    if not (messages / "_delta_log").is_dir():
        return {}
    return dict(DeltaTable(str(messages)).metadata().configuration)


def digest(stream: Stream) -> list[Any]:
    """The number of messages of a stream, and a digest of their content."""
    tables = [table.combine_chunks() for table in stream.messages()]
    held = pa.concat_tables(tables).to_pylist() if tables else []
    return [len(held), hashlib.sha256(repr(held).encode()).hexdigest()]


def _kept(folder: Path, stream: str) -> list[str]:
    """The copies named by an archive's manifests, all complete."""
    named: set[str] = set()
    for directory in (folder / "archive" / stream).glob("*"):
        replacements = read_replacements(str(directory))
        for manifest in read_manifests(str(directory)):
            for one in chain.from_iterable(map(replacements.last, manifest.content.files)):
                assert digest_of(one.data_file(str(directory))) == one.sha256
                named.add(f"{one.segment}/{one.min_seq}")
    return sorted(named)


def _accounted(folder: Path, left: set[str]) -> dict[str, int]:
    """The number of files of each kind on the disk, without orphans; files missed by `orphans` show up here."""
    kinds = ("staging", "trash", "subjects", "reports", "consumers", "messages", "_tables", "runs")
    real = {str(Path(location).resolve()) for location in left}
    counts: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and str(path.resolve()) not in real:
            # The user's directory of plans is not managed: leftovers of a crash there are visible to the user.
            # Neither are the ledger and the warehouse's own records, apart from those of streams.
            is_managed = path.relative_to(folder).parts[0] not in ("ledger", "_retention")
            unfinished = path.suffix == ".tmp" and "plans" not in path.parts and is_managed
            data = path.suffix in (".parquet", ".arrow") and "_delta_log" not in path.parts
            kind = next((kind for kind in kinds if kind in path.parts), None)
            if unfinished or (kind and data):
                counts[f"{kind} {'unfinished' if unfinished else ''}".strip()] += 1
    return dict(counts)


def _given(count: int, first_ns: int) -> pa.Table:
    rows = pa.table(
        {
            "subject": [f"s.{n % 3}" for n in range(count)],
            "ts_ns": pa.array([first_ns + n * SECOND for n in range(count)], pa.int64()),
            "headers": pa.nulls(count, pa.binary()),
            "payload": pa.array([b"x"] * count, pa.binary()),
        }
    )
    return complete_rows(rows, "file")


def _rows(first_seq: int, count: int, first_ns: int) -> Iterator[pa.Table]:
    return with_sequences([_given(count, first_ns + first_seq * SECOND)], first_seq)


def _in_a_fork(case: dict[str, Any]) -> None:
    """Execute one case: `do` is prepare, act, record (act, with a log of its steps), outcome, or
    recover (act, then the outcome)."""
    folder, scenario = Path(case["folder"]), SCENARIOS[case["scenario"]]
    crash_points.watch(case.get("env", {}))
    if case["do"] == "prepare":
        scenario.prepare(folder, case["format"])
    if case["do"] == "record":
        _record(partial(scenario.act, folder), Path(case["log"]))
    if case["do"] in ("act", "recover"):
        scenario.act(folder)
    if case["do"] in ("outcome", "recover"):
        found = outcome_of(folder, scenario)
        Path(case["result"]).write_text(json.dumps(found), encoding="utf-8")


def _record(act: Callable[[], None], log: Path) -> None:
    """Act, and write a line for each step: its name, and the engine's functions on the call stack."""
    lines: list[str] = []

    def note(step: Step) -> None:
        path: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(_ENGINE):
                path.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        lines.append(json.dumps([step, path]))

    with crash_points.watched_by(note):
        act()
    log.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    # The ledger is copied with the folder.
    load.ledger_mistakes = lambda *_: iter(())  # type: ignore[attr-defined]
    serve(_in_a_fork)
