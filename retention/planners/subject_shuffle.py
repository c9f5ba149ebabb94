"""The limit per subject over more subjects than one process holds: digests dealt out by hash of subject, on disk.

Tasks deal every digest into buckets of subjects, then decide bucket by bucket what goes of each span; they hold one
bucket at a time, whatever the stream's size. Only totals by span come back; the rest lies in files until the end.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.spans import Array, Spans
from retention.engines.select import Engines
from retention.plan.remaining import RemainingMessages, RemainingRow
from retention.rules.jetstream.max_msgs_per_subject import (
    KeepCounts,
    KeepLast,
    SpanSubjects,
    StoredShare,
    surplus,
)
from retention.rules.row_verdicts import Question
from retention.rules.rule import SubjectExcess
from retention.storage import files
from retention.stores.layout import Layout
from retention.stores.sidecar import subject_digests

HELD_BYTES = 128 << 20
"""Digests of this length together are decided in one piece, in this process."""
BUCKET_BYTES = 16 << 20
"""Length of the digests that a task holds, about; in memory it is several times as much."""

DIRECTORY = "exchange"
"""Directory among the engine's own in which Spark tasks pass subjects on; a pass that is killed leaves its part."""

_DEALT = pa.schema(
    [
        pa.field("file", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("messages", pa.int64()),
        pa.field("last_seq", pa.int64()),
    ]
)
_DECIDED = pa.schema([*list(_DEALT)[1:], pa.field("beyond", pa.int64())])
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_AT_ONCE = 65_536
Asked = TypeVar("Asked")

_BASE, _MIX = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class PartitionTask:
    """A task: the digests of neighbouring files, to be dealt into buckets."""

    files: tuple[DataFile, ...]
    first: RemainingRow
    """The first file's row number in what remains; the others follow it."""
    messages: tuple[int, ...]
    """Number of messages that each file holds."""
    digests: tuple[pa.Table | None, ...]
    """The digest of what is left of a file, where that is less than it holds."""
    buckets: int
    target: str


@dataclass(frozen=True)
class DecideTask:
    """A task: one bucket of all digests."""

    bucket: int
    dealt: tuple[str, ...]
    limit: int
    span_of_file: Array
    spans: int
    target: str


@dataclass(frozen=True)
class ShuffledExcess:
    """The messages of each span beyond the limit, like `Surplus`, but kept in files."""

    messages: Array
    places: tuple[str, ...]

    def of_span(self, span: int) -> StoredShare:
        """The place of one span's share: what the limit does to it."""
        return StoredShare(self.places, span)


def subject_excess(
    opened: OpenedStream, left: RemainingMessages, spans: Spans, limit: int, engines: Engines
) -> SubjectExcess:
    """Count each span's excess over the limit per subject, from digests: in this process, or by tasks if many.

    Raises:
        DamagedError: a data file whose digest is lost cannot be read.
    """
    lengths = subject_digests.lengths(Layout(opened.root, opened.name), left.files)
    excess: SubjectExcess | None = None
    if sum(lengths) > HELD_BYTES:
        with files.if_writable():
            excess = _exchange(opened, left, spans, (limit, lengths), engines)
    if excess is None:
        counts = left.subject_counts(opened.store)
        excess = surplus(limit, counts, spans.span_of_file, len(spans))
    return excess


def with_fetched_shares(question: Asked) -> Asked:
    """Complete a question with all that it takes to answer it, wherever that was kept."""
    if not isinstance(question, Question):
        return question
    parts = tuple(
        _fetched(part) if isinstance(part, StoredShare) else part for part in question.parts
    )
    return replace(question, parts=parts)


def _fetched(share: StoredShare) -> KeepCounts | KeepLast:
    table = pa.Table.from_batches([_piece(place, share.span) for place in share.places], _DECIDED)
    numbers = (table[name].to_numpy() for name in ("messages", "last_seq", "beyond"))
    return SpanSubjects(table["subject"].combine_chunks(), *numbers).share()


def partition_subjects(task: PartitionTask) -> None:
    """Carry out a `PartitionTask`: an Arrow file whose batch number `n` has the subjects of bucket `n`."""
    batches: list[list[pa.RecordBatch]] = [[] for _ in range(task.buckets)]
    given = zip(task.files, task.messages, task.digests, strict=True)
    for at, (file, messages, digest) in enumerate(given):
        counted = (
            subject_digests.digest_of(file, messages) if digest is None else digest
        ).combine_chunks()
        numbers = pa.array(np.full(len(counted), task.first + at), pa.int64())
        counted = counted.add_column(0, _DEALT.field("file"), numbers).cast(_DEALT)
        bucket = bucket_of(counted["subject"], task.buckets)
        for number, kept in enumerate(batches):
            kept.extend(counted.filter(pa.array(bucket == number)).to_batches())
    _write(task.target, _DEALT, batches)


def decide_bucket(task: DecideTask) -> Array:
    """Carry out a `DecideTask`: an Arrow file with a batch for each span; messages beyond the limit by span."""
    counts = pa.Table.from_batches([_piece(place, task.bucket) for place in task.dealt], _DEALT)
    excess = surplus(task.limit, counts, task.span_of_file, task.spans)
    batches = [
        [
            pa.record_batch(
                [held.subjects, held.messages, held.last_seq, held.beyond], schema=_DECIDED
            )
        ]
        for held in excess.held
    ]
    _write(task.target, _DECIDED, batches)
    return excess.messages


def bucket_of(subjects: pa.ChunkedArray, buckets: int) -> Array:
    """The bucket of each subject, the same in every process."""
    hashes = [
        _hashes(chunk[at : at + _AT_ONCE])
        for chunk in subjects.chunks
        for at in range(0, len(chunk), _AT_ONCE)
    ]
    return np.concatenate([np.zeros(0, np.uint64), *hashes]) % np.uint64(buckets)


def _exchange(
    opened: OpenedStream,
    left: RemainingMessages,
    spans: Spans,
    limit_and_lengths: tuple[int, Sequence[int]],
    engines: Engines,
) -> ShuffledExcess:
    limit, lengths = limit_and_lengths
    engine = engines.pick(opened.config.engine, sum(lengths), opened.config.local_limit)
    place = _place(opened, engine.name, engines)
    buckets = -(-sum(lengths) // BUCKET_BYTES)
    stored = left.stored
    data = opened.store.data_files(stored)
    messages = stored["messages"].to_pylist()
    deals = [
        PartitionTask(
            tuple(data[start:end]),
            RemainingRow(start),
            tuple(messages[start:end]),
            tuple(left.digests.get(RemainingRow(number)) for number in range(start, end)),
            buckets,
            files.join(place, f"dealt-{start}.arrow"),
        )
        for start, end in _runs(lengths)
    ]
    engine.map(
        partition_subjects, deals, [sum(lengths[task.first :][: len(task.files)]) for task in deals]
    )
    dealt = tuple(task.target for task in deals)
    decides = [
        DecideTask(
            number,
            dealt,
            limit,
            spans.span_of_file,
            len(spans),
            files.join(place, f"decided-{number}.arrow"),
        )
        for number in range(buckets)
    ]
    totals = engine.map(decide_bucket, decides, [BUCKET_BYTES] * buckets)
    files.delete(dealt)
    return ShuffledExcess(np.sum(totals, axis=0), tuple(task.target for task in decides))


def _place(opened: OpenedStream, engine: str, engines: Engines) -> str:
    """A new directory that all tasks reach, gone when the engines are."""
    if engine == "local":
        place = tempfile.mkdtemp(prefix="retention-")
    else:
        place = Layout(opened.root, opened.name).engine_path(DIRECTORY, uuid.uuid4().hex)
        files.make_directory(place)
    engines.at_end(lambda: _clear(place))
    return place


def _clear(place: str) -> None:
    files.delete(files.join(place, path) for path in files.walk(place))
    if not files.is_remote(place):
        with suppress(OSError):
            Path(place).rmdir()


def _runs(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring files whose digests are about a bucket long together: first file, and next after the last.

    With buckets of 16 bytes, the lengths 10, 5, 8, 20 make (0, 2), (2, 3) and (3, 4).
    """
    start = held = 0
    for at, length in enumerate(lengths):
        if held and held + length > BUCKET_BYTES:
            yield start, at
            start, held = at, 0
        held += length
    if start < len(lengths):
        yield start, len(lengths)


def _write(location: str, schema: pa.Schema, batches: Sequence[Sequence[pa.RecordBatch]]) -> None:
    empty = schema.empty_table()
    with files.create(location) as sink, pa.ipc.new_file(sink, schema, options=_LZ4) as writer:
        for parts in batches:
            table = pa.concat_tables([empty, *map(_as_table, parts)]).combine_chunks()
            writer.write_batch(table.to_batches()[0] if len(table) else _nothing(schema))


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema)


def _piece(location: str, number: int) -> pa.RecordBatch:
    with files.open_input(location) as source:
        return pa.ipc.open_file(source).get_batch(number)


def _hashes(subjects: pa.StringArray) -> Array:
    """A polynomial over each subject's bytes, mixed; 0 for the empty subject.

    Of "ab" (bytes 97 and 98), modulo 2**64: sum = (98 * BASE + 99 * BASE**2) * MIX; hash = sum ^ (sum >> 32).
    """
    _, offsets, content = subjects.buffers()
    edges = np.frombuffer(offsets, np.int32)[subjects.offset :][: len(subjects) + 1]
    octets = np.frombuffer(content, np.uint8)[edges[0] : edges[-1]]
    lengths = np.diff(edges)
    starts = edges[:-1] - edges[0]
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _BASE))
    places = np.arange(len(octets)) - np.repeat(starts, lengths)
    terms = np.append((octets + np.uint64(1)) * powers[places], np.uint64(0))
    sums = np.add.reduceat(terms, starts) * _MIX
    mixed: Array = np.where(lengths > 0, sums ^ (sums >> np.uint64(32)), np.uint64(0))
    return mixed
