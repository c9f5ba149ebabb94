"""Importing an Iggy topic's directory into an empty topic: each log a segment, all of them or none, once."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.table_updates import SetNextSeq, SetOpenBase, set_batches
from retention.datafile import parquet
from retention.engines.select import Engines
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    RefusedError,
    StalePlanError,
)
from retention.formats.iggy.era import EraName
from retention.formats.iggy.findings import Finding
from retention.formats.iggy.source import opened as opened_log
from retention.formats.iggy.topic import Topic, era_of, read_topic, refuse_damage, refuse_other_era
from retention.history.runs import history_of
from retention.ingest.append import LEASE_WAIT_S
from retention.ingest.idempotency import BatchIdentity, is_repeat
from retention.ingest.topics.import_rows import Taken, Taking, taken
from retention.ports import Snapshot, Swap
from retention.storage.crash_points import Step, reached
from retention.stores.lease import lease
from retention.stores.offset_table import Offsets, OffsetTable, Reader, StoredOffset
from retention.stores.topic_settings import keep_settings
from schemas.files import LOGGED_FILES

_WRITER = "iggy-log/"
_NEWEST: EraName = "0.9"
"""Of a directory in which no era can be told, for nothing in it is sound."""
_TELLING_BYTES = 4_096


@dataclass(frozen=True)
class TopicImported:
    """What a topic's directory holds, and whether this import wrote it."""

    stream: str
    messages: int
    bytes: int
    partitions: int
    already: bool
    """The same directory was imported before, and nothing was written."""
    findings: tuple[Finding, ...] = ()
    """What there is to say about the directory: damage, tears, holes, what was skipped."""


def import_iggy_log(
    opened: OpenedStream,
    directory: str,
    engines: Engines,
    era: EraName | None = None,
    *,
    allow_damaged: bool = False,
) -> TopicImported:
    """Import the directory of one topic of an Iggy server (docs/semantics/topics.md).

    Args:
        opened: the topic; nothing may ever have been written to it. It is created if it does not exist.
        directory: `streams/<id>/topics/<id>` of the server's data directory; it is only read.
        engines: where logs are read.
        era: of the server that wrote the logs; None: found out by their checksums.
        allow_damaged: leave out what is damaged instead of refusing all of it.

    Raises:
        UsageError: it is no such directory, or its logs are of another era; or this is no topic.
        DamagedError: something is damaged; nothing was imported.
        RefusedError: the topic holds, or held, something else, or has fewer partitions; or messages are encrypted.
        BusyError: the append lease is held, or another writer came first.
    """
    topic_of(opened)
    found = read_topic(directory)
    _refuse_more_partitions(opened, found)
    if era is not None:
        refuse_other_era(found, era)
    identity = BatchIdentity(_WRITER + _digest(found), 1)
    with lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S):
        opened.store.create()
        snapshot = opened.store.snapshot()
        if is_repeat(opened.name, snapshot, identity):
            return TopicImported(opened.name, 0, 0, len(found.partitions), already=True)
        _refuse_used(opened, snapshot, found)
        with _staged(opened, found, era or era_of(found) or _NEWEST, engines) as logs:
            findings = _findings(found, logs)
            if not allow_damaged:
                refuse_damage(findings)
            keep_settings(opened.root, opened.config)
            _keep_offsets(opened, found, identity.writer, snapshot.counters.epoch)
            _commit(opened, found, logs, identity, snapshot)
        opened.store.finish()
    return TopicImported(
        opened.name,
        sum(log.total("messages") for log in logs),
        sum(log.total("bytes") for log in logs),
        len(found.partitions),
        already=False,
        findings=tuple(findings),
    )


def _refuse_more_partitions(opened: OpenedStream, found: Topic) -> None:
    listed, there = opened.config.partitions, found.partitions[-1].number + 1
    if there > listed:
        raise RefusedError(
            f"{opened.name}: {found.directory} has partition {there - 1}, and the topic has {listed}, counted from 0; "
            f"nothing was imported; write partitions: {there}"
        )


def _digest(found: Topic) -> str:
    """What tells a directory from others: its logs, their lengths, and how each ends."""
    digest = hashlib.sha256()
    for log in found.logs:
        with opened_log(log.location, log.size) as source:
            end = source.read(max(log.size - _TELLING_BYTES, 0), _TELLING_BYTES)
        digest.update(f"{log.partition}/{log.segment}/{log.size}/".encode() + end)
    return digest.hexdigest()


def _refuse_used(opened: OpenedStream, snapshot: Snapshot, found: Topic) -> None:
    known = history_of(opened.warehouse, opened.name).above(snapshot.counters).next_seq
    if snapshot.files.num_rows or any(
        known.get(one.number) is not None for one in found.partitions
    ):
        raise RefusedError(
            f"{opened.name}: the topic was written to before, so that {found.directory} cannot keep its offsets; "
            "nothing was imported; import into a new topic"
        )


@contextmanager
def _staged(
    opened: OpenedStream, found: Topic, era: EraName, engines: Engines
) -> Iterator[list[Taken]]:
    """What became of each log; if the block raises, the files are deleted, unless a commit may name them."""
    logs = found.logs
    tasks = [
        Taking(log, era, opened.store.stage(log.partition, log.segment), opened.name)
        for log in logs
    ]
    sizes = [log.size for log in logs]
    engine = engines.pick(opened.config.engine, sum(sizes), opened.config.local_limit)
    try:
        yield engine.map(taken, tasks, sizes)
    except CommitUnknownError:
        raise
    except BaseException:
        opened.store.discard([task.file.path for task in tasks])
        raise


def _findings(found: Topic, logs: Sequence[Taken]) -> list[Finding]:
    """What there is to say about a directory: what was skipped, then each partition from its first log to its last."""
    told: list[Finding] = list(found.skipped)
    after = iter(logs)
    for partition in found.partitions:
        next_offset = partition.first_offset
        for log in partition.logs:
            told += partition.missing(next_offset, log)
            read = next(after)
            told += read.findings
            next_offset = read.next_offset
    return told


def _keep_offsets(opened: OpenedStream, found: Topic, origin: str, epoch: int) -> None:
    """Before the commit: without it they belong to nothing, and with it no pass can overlook one."""
    now = opened.clock()
    stored = {
        Reader(partition.number, one.kind, str(one.id)): StoredOffset(one.offset, now)
        for partition in found.partitions
        for one in partition.stored_offsets
    }
    if not stored:
        return

    def imported(before: Offsets) -> Offsets:
        known = before.in_epoch(epoch)
        if known.origin == origin:
            return before
        return replace(known, of=stored, revision=known.revision + 1, origin=origin)

    OffsetTable(opened.root).update(imported)
    reached(Step.OFFSETS_KEPT)


def _commit(
    opened: OpenedStream,
    found: Topic,
    logs: Sequence[Taken],
    identity: BatchIdentity,
    snapshot: Snapshot,
) -> None:
    last = {log.partition: (log, read) for log, read in zip(found.logs, logs, strict=True)}
    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=parquet.stats_table([row for read in logs for row in read.stats]),
        metadata={
            "run": f"import-{uuid.uuid4().hex}",
            "messages": sum(read.total("messages") for read in logs),
        },
        updates=[
            *(SetNextSeq(partition, read.next_offset) for partition, (_, read) in last.items()),
            *(SetOpenBase(partition, log.segment) for partition, (log, _) in last.items()),
            *set_batches(identity.batches),
        ],
    )
    try:
        opened.store.commit(swap, snapshot)
    except (ConflictError, StalePlanError) as error:
        raise BusyError(
            f"{opened.name}: another writer committed first; nothing was imported; a topic that is imported must hold "
            "nothing else: look at it, then try again"
        ) from error
