"""Importing an Iggy topic's directory into an empty topic: one segment per log, all or none, exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.display import Displayed
from retention.core.labels import labelled, on_stream
from retention.datafile.segment_writer import Staged, Staging
from retention.engines.select import Engines
from retention.errors import BusyError, RefusedError
from retention.formats.iggy.era import EraName
from retention.formats.iggy.findings import Finding
from retention.formats.iggy.source import opened as opened_log
from retention.formats.iggy.topic import (
    TopicDirectory,
    era_of,
    read_topic,
    refuse_damage,
    refuse_other_era,
)
from retention.history.runs import history_of
from retention.ingest.append import appending, refuse_synced
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.topics.import_rows import ImportedLog, ImportTask, import_partition
from retention.ports import Snapshot
from retention.storage.crash_points import Step, reached
from retention.stores.offset_table import Offsets, OffsetTable, Reader, StoredOffset

_WRITER = "iggy-log/"
_NEWEST: EraName = "0.9"
"""The era assumed for a directory whose logs are all unreadable."""
_TELLING_BYTES = 4_096


@dataclass(frozen=True)
class TopicImported(Displayed):
    """The content of a topic's directory, and whether this import wrote it."""

    stream: str
    messages: int
    bytes: int
    partitions: int
    already: bool
    """Whether the same directory was imported before, and nothing was written."""
    findings: tuple[Finding, ...] = ()
    """Findings about the directory: damage, torn writes, holes, skipped parts."""


@on_stream
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
        opened: the topic; it must never have been written to. It is created if it does not exist.
        directory: `streams/<id>/topics/<id>` of the server's data directory; it is only read.
        engines: where logs are read.
        era: of the server that wrote the logs; None: detected by their checksums.
        allow_damaged: skip damaged parts instead of refusing the whole directory.

    Raises:
        UsageError: it is not such a directory, its logs are of another era, or this is not a topic.
        DamagedError: something is damaged; nothing was imported.
        RefusedError: the topic contains, or contained, other messages, or has fewer partitions; or messages are
            encrypted.
        BusyError: the append lease is held, or another writer came first.
    """
    topic_of(opened)
    refuse_synced(opened.config)
    topic = read_topic(directory)
    _refuse_more_partitions(opened, topic)
    if era is not None:
        refuse_other_era(topic, era)
    identity = BatchIdentity(_WRITER + _digest(topic), 1)
    findings: list[Finding] = []
    with appending(opened, identity, "import") as append:
        for number, attempt in enumerate(append.attempts()):
            snapshot = attempt.position.snapshot
            _refuse_rival(opened, number)
            _refuse_used(opened, snapshot, topic)
            wrote_in = era or era_of(topic) or _NEWEST
            logs = _staged(opened, topic, wrote_in, attempt.staging, engines)
            findings = _findings(topic, logs)
            if not allow_damaged:
                refuse_damage(findings)
            _keep_offsets(opened, topic, identity.writer, snapshot.counters.epoch)
            append.commit(_ends(topic, logs))
    done = append.done
    return TopicImported(
        opened.name,
        done.messages,
        done.bytes,
        len(topic.partitions),
        already=done.duplicate,
        findings=tuple(findings),
    )


def _refuse_more_partitions(opened: OpenedStream, topic: TopicDirectory) -> None:
    listed, there = opened.config.partitions, topic.partitions[-1].number + 1
    if there > listed:
        raise RefusedError(
            f"{opened.name}: {topic.directory} has partition {there - 1}, and the topic has {listed}, counted from 0; "
            f"nothing was imported; write partitions: {there}"
        )


def _digest(topic: TopicDirectory) -> str:
    """A digest that identifies a directory: from its logs, their lengths, and the end of each."""
    digest = hashlib.sha256()
    for log in topic.logs:
        with opened_log(log.location, log.size) as source:
            end = source.read(max(log.size - _TELLING_BYTES, 0), _TELLING_BYTES)
        digest.update(f"{log.partition}/{log.segment}/{log.size}/".encode() + end)
    return digest.hexdigest()


def _refuse_used(opened: OpenedStream, snapshot: Snapshot, topic: TopicDirectory) -> None:
    known = history_of(opened.warehouse, opened.name).above(snapshot.counters).next_seq
    if snapshot.files.num_rows or any(
        known.get(partition.number) is not None for partition in topic.partitions
    ):
        raise RefusedError(
            f"{opened.name}: the topic was written to before, so {topic.directory} cannot keep its offsets; "
            "nothing was imported; import into a new topic"
        )


def _refuse_rival(opened: OpenedStream, attempts: int) -> None:
    """Refuse another attempt after a lost race."""
    if attempts:
        raise BusyError(
            f"{opened.name}: another writer committed first; nothing was imported; an imported topic must have no "
            "other messages: inspect it, then try again"
        )


@labelled(step="import logs")
def _staged(
    opened: OpenedStream, topic: TopicDirectory, era: EraName, staging: Staging, engines: Engines
) -> list[ImportedLog]:
    """Write each log's messages; return the outcome for each log."""
    tasks = []
    for log in topic.logs:
        [file] = staging.new(log.segment, log.partition)
        tasks.append(ImportTask(log, era, file, opened.name))
    sizes = [log.size for log in topic.logs]
    engine = engines.pick(opened.config.engine, sum(sizes), opened.config.local_limit)
    return engine.map(import_partition, tasks, sizes)


def _ends(topic: TopicDirectory, logs: Sequence[ImportedLog]) -> Staged:
    """The commit's content: each partition's next offset after its last log, and that log as its active segment."""
    last = {log.partition: (log, read) for log, read in zip(topic.logs, logs, strict=True)}
    return Staged(
        stats=[row for read in logs for row in read.stats],
        next_seq={partition: read.next_offset for partition, (_, read) in last.items()},
        open_base={partition: log.segment for partition, (log, _) in last.items()},
    )


def _findings(topic: TopicDirectory, logs: Sequence[ImportedLog]) -> list[Finding]:
    """Findings about a directory: skipped parts, then each partition from its first log to its last."""
    findings: list[Finding] = list(topic.skipped)
    after = iter(logs)
    for partition in topic.partitions:
        next_offset = partition.first_offset
        for log in partition.logs:
            findings += partition.missing(next_offset, log)
            read = next(after)
            findings += read.findings
            next_offset = read.next_offset
    return findings


def _keep_offsets(opened: OpenedStream, topic: TopicDirectory, origin: str, epoch: int) -> None:
    """Keep offsets before the commit: without it they have no effect, and after it no pass can miss one."""
    now = opened.clock()
    stored = {
        Reader(partition.number, stored_offset.kind, str(stored_offset.id)): StoredOffset(
            stored_offset.offset, now
        )
        for partition in topic.partitions
        for stored_offset in partition.stored_offsets
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
