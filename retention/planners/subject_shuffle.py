"""The limit per subject for more subjects than fit into one process: digests are shuffled by hash of subject.

Tasks partition every digest into buckets of subjects, decide the removals of each span bucket by
bucket, and collect them span by span. They hold one bucket or one span in memory at a time, for any
size of stream. Only totals by span return to the driver; the removals of each span are stored in a
file until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.integer_sort import distinct_in_order
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.neighbours import runs_within
from retention.core.spans import Array, Spans
from retention.core.text_order import words_of
from retention.engine_port import Engine, Gathering, Part, Task
from retention.engines.select import Engines
from retention.plan.remaining import (
    RemainingMessages,
    RemainingRow,
    StoredDigest,
    digest_in,
)
from retention.planners.scratch import new_scratch
from retention.rules.jetstream.max_msgs_per_subject import (
    KeepCounts,
    KeepLast,
    SpanSubjects,
    StoredShare,
    surplus,
)
from retention.rules.row_verdicts import Question
from retention.rules.rule import SubjectExcess
from retention.storage import files, scratch_files
from retention.stores.sidecar import subject_digests

HELD_BYTES = 128 << 20
"""The maximum total length of digests to decide in this process."""
BUCKET_BYTES = 16 << 20
"""The approximate length of digests per bucket; they take several times as much in memory."""

DEALT = pa.schema(
    [
        pa.field("file", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("messages", pa.int64()),
        pa.field("last_seq", pa.int64()),
    ]
)
"""Digests to shuffle: `file` is the number of a file with remaining messages, ascending."""

_DECIDED = pa.schema([*list(DEALT)[1:], pa.field("beyond", pa.int64())])
_KEEP_LAST = pa.schema([pa.field("seq", pa.int64())])
_KEEP_COUNTS = pa.schema([pa.field("subject", pa.string()), pa.field("count", pa.int64())])
_STAY, _GO = {b"counts": b"stay"}, {b"counts": b"go"}
_AT_ONCE = 8_192
Asked = TypeVar("Asked")

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class DealTask:
    """A task: the digests of neighbouring files, to partition into buckets."""

    files: tuple[DataFile, ...]
    first: RemainingRow
    """The first file's row number among the remaining files; the others follow it."""
    messages: tuple[int, ...]
    """The number of messages in each file."""
    digests: tuple[pa.Table | StoredDigest | None, ...]
    """The digest of a file's remaining messages, if some are released."""
    buckets: int


@dataclass(frozen=True)
class DecidedSpan:
    """The messages of one span beyond the limit."""

    span: int
    messages: int
    place: str
    """The file with the rule of the limit for the rows of the span."""


@dataclass(frozen=True)
class ShuffledExcess:
    """The messages of each span beyond the limit, like `Excess`, but stored in files."""

    messages: Array
    places: Mapping[int, str]
    """Span → its file; spans without removals are omitted."""
    subjects: int
    """The number of all subjects."""

    def of_span(self, span: int) -> StoredShare:
        """The location of one span's share of the excess."""
        return StoredShare(self.places[span], span)


def subject_excess(
    opened: OpenedStream, left: RemainingMessages, spans: Spans, limit: int, engines: Engines
) -> SubjectExcess:
    """Count each span's excess over the limit per subject from digests, in this process, or by tasks if there are many.

    Raises:
        DamagedError: a data file whose digest is lost cannot be read.
    """
    lengths = subject_digests.lengths(opened.layout, left.files)
    excess: SubjectExcess | None = None
    if sum(lengths) > HELD_BYTES:
        with files.if_writable():
            excess = _shuffled(opened, left, spans, (limit, lengths), engines)
    if excess is None:
        counts = left.subject_counts(opened.store)
        excess = surplus(limit, counts, spans.span_of_file, len(spans))
    return excess


def with_fetched_shares(question: Asked) -> Asked:
    """Complete a question with its stored share, if it has one."""
    if not isinstance(question, Question):
        return question
    parts = tuple(
        _read_share(part.place) if isinstance(part, StoredShare) else part
        for part in question.parts
    )
    return replace(question, parts=parts)


def deal_subjects(task: DealTask) -> Iterator[Part]:
    """Partition the subjects of a `DealTask` into buckets; contents are batches of shape `DEALT`."""
    given = zip(task.files, task.messages, task.digests, strict=True)
    tables = []
    for at, (file, messages, digest) in enumerate(given):
        counted = subject_digests.digest_of(file, messages) if digest is None else digest_in(digest)
        numbers = pa.array(np.full(len(counted), task.first + at), pa.int64())
        tables.append(counted.add_column(0, DEALT.field("file"), numbers).cast(DEALT))
    return deal_rows(pa.concat_tables(tables), task.buckets)


def deal_rows(digests: pa.Table, buckets: int) -> Iterator[Part]:
    """Partition the rows of digests into buckets of subjects; contents are batches for `unpacked`.

    Args:
        digests: a column `subject` (string), and others.
        buckets: the number of buckets.
    """
    # NumPy uses a radix sort for small integers, which takes a tenth of the time.
    bucket = bucket_of(digests["subject"], buckets).astype(np.min_scalar_type(buckets))
    # Rows stay in order of files within each bucket.
    ordered = digests.combine_chunks().take(pa.array(np.argsort(bucket, kind="stable")))
    ends = np.cumsum(np.bincount(bucket, minlength=buckets)).tolist()
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            yield number, _packed(ordered.slice(start, end - start))


@dataclass(frozen=True)
class DecideBucket:
    """A function that decides the removals of each span in one bucket, and emits them by span.

    A part has the number of removed messages and identifies them: under a limit of one by the last
    kept message of each subject, otherwise by all subjects. A part for the key after the last span has the number of
    subjects in the bucket.
    """

    limit: int
    span_of_file: Array
    spans: int

    def __call__(self, bucket: int, contents: Sequence[bytes]) -> Iterator[Part]:
        """The parts of a bucket's spans; contents are batches of shape `DEALT`."""
        del bucket
        counts = unpacked(contents, DEALT)
        excess = surplus(self.limit, counts, self.span_of_file, self.spans)
        yield self.spans, _number(excess.subjects)
        for span, held in enumerate(excess.held):
            if len(held.messages):
                yield span, _number(int(held.beyond.sum())) + self._which(held)

    def _which(self, held: SpanSubjects) -> bytes:
        if self.limit > 1:
            columns = [held.subjects, held.messages, held.last_seq, held.beyond]
            return _packed(pa.table(columns, schema=_DECIDED))
        return _packed(pa.table([held.last_seq[held.beyond < held.messages]], schema=_KEEP_LAST))


@dataclass(frozen=True)
class GatherSpan:
    """A function that collects the removals of one span, and stores them in a file, or counts the subjects."""

    limit: int
    spans: int
    directory: str

    def __call__(self, span: int, contents: Sequence[bytes]) -> DecidedSpan | int:
        """The span, from parts of `DecideBucket`, 0 if nothing of it is removed; or the number of subjects."""
        total = sum(int.from_bytes(content[:8], "little") for content in contents)
        if span == self.spans or not total:
            return total
        place = scratch_files.new_place(self.directory, f"span-{span}")
        _write_share(place, self._share([content[8:] for content in contents]))
        return DecidedSpan(span, total, place)

    def _share(self, contents: Sequence[bytes]) -> KeepCounts | KeepLast:
        if self.limit == 1:
            return KeepLast(distinct_in_order(unpacked(contents, _KEEP_LAST)["seq"].to_numpy()))
        table = unpacked(contents, _DECIDED)
        numbers = (table[name].to_numpy() for name in ("messages", "last_seq", "beyond"))
        return SpanSubjects(table["subject"].combine_chunks(), *numbers).share()


def bucket_of(subjects: pa.ChunkedArray, buckets: int) -> Array:
    """The bucket of each subject, the same in every process."""
    hashes = [
        _hashes(chunk[at : at + _AT_ONCE])
        for chunk in subjects.chunks
        for at in range(0, len(chunk), _AT_ONCE)
    ]
    return np.concatenate([np.zeros(0, np.uint64), *hashes]) % np.uint64(buckets)


def buckets_for(length: int) -> int:
    """The number of buckets for a total length of digests."""
    return -(-length // BUCKET_BYTES)


@dataclass(frozen=True)
class Exchange:
    """A shuffle of digests between tasks: partitioned, decided bucket by bucket, and collected span by span."""

    engine: Engine
    decide: DecideBucket
    buckets: int
    directory: str
    """The directory for the files of spans with removals."""

    def excess(
        self,
        deal: Callable[[Task], Iterable[Part]],
        tasks: Sequence[Task],
        weights: Sequence[int],
    ) -> ShuffledExcess:
        """Count the removals of each span.

        Args:
            deal: partitions the digests of a task into buckets, like `deal_rows`; picklable.
            tasks: the digests, in the order of files.
            weights: the bytes that each task reads.
        """
        spans, limit = self.decide.spans, self.decide.limit
        decided = self.engine.shuffle(
            deal,
            tasks,
            weights,
            Gathering(self.decide, self.buckets),
            Gathering(GatherSpan(limit, spans, self.directory), min(self.buckets, spans)),
        )
        # The subjects have the last key; there is none without a digest.
        subjects = cast("int", decided[-1]) if decided else 0
        going = [span for span in decided if isinstance(span, DecidedSpan)]
        totals = np.zeros(spans, dtype=np.int64)
        totals[[span.span for span in going]] = [span.messages for span in going]
        return ShuffledExcess(totals, {span.span: span.place for span in going}, subjects)


@labelled(step="count messages of subjects")
def _shuffled(
    opened: OpenedStream,
    left: RemainingMessages,
    spans: Spans,
    limit_and_lengths: tuple[int, Sequence[int]],
    engines: Engines,
) -> ShuffledExcess:
    limit, lengths = limit_and_lengths
    engine = engines.pick(opened.config.engine, sum(lengths), opened.config.local_limit)
    buckets = buckets_for(sum(lengths))
    stored = left.stored
    data = opened.store.data_files(stored)
    messages = stored["messages"].to_pylist()
    deals = [
        DealTask(
            tuple(data[start:end]),
            RemainingRow(start),
            tuple(messages[start:end]),
            tuple(left.digests.get(RemainingRow(number)) for number in range(start, end)),
            buckets,
        )
        for start, end in runs_within(lengths, BUCKET_BYTES)
    ]
    scratch = new_scratch(opened, engine)
    engines.at_end(scratch.close)
    decide = DecideBucket(limit, spans.span_of_file, len(spans))
    return Exchange(engine, decide, buckets, scratch.location).excess(
        deal_subjects, deals, [sum(lengths[task.first :][: len(task.files)]) for task in deals]
    )


def _number(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _packed(table: pa.Table) -> bytes:
    """A table as one compressed batch without schema, because a shuffle moves very many of them; empty for no rows."""
    if not table.num_rows:
        return b""
    [batch] = table.combine_chunks().to_batches()
    content = batch.serialize()
    return len(content).to_bytes(8, "little") + pa.compress(content, "lz4", asbytes=True)


def unpacked(contents: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """The rows in the contents of parts, in order."""
    return pa.Table.from_batches(
        [
            pa.ipc.read_record_batch(_decompressed(content), schema)
            for content in contents
            if content
        ],
        schema,
    )


def _decompressed(content: bytes) -> pa.Buffer:
    length = int.from_bytes(content[:8], "little")
    return pa.decompress(memoryview(content)[8:], length, "lz4")


def _write_share(location: str, share: KeepCounts | KeepLast) -> None:
    if isinstance(share, KeepLast):
        table = pa.table([share.seqs], schema=_KEEP_LAST)
    else:
        schema = _KEEP_COUNTS.with_metadata(_STAY if share.stay else _GO)
        table = pa.table([share.subjects, share.counts], schema=schema)
    scratch_files.write_table(location, table)


def _read_share(location: str) -> KeepCounts | KeepLast:
    table = scratch_files.read_table(location).combine_chunks()
    if table.schema.equals(_KEEP_LAST):
        return KeepLast(table["seq"].to_numpy())
    subjects = pa.concat_arrays([pa.nulls(0, pa.string()), *table["subject"].chunks])
    return KeepCounts(subjects, table["count"].to_numpy(), table.schema.metadata == _STAY)


def _hashes(subjects: pa.StringArray) -> Array:
    """A hash of each subject: its length, mixed with its bytes, eight at a time."""
    words, starts, lengths = words_of(subjects)
    hashes = lengths.astype(np.uint64)
    for at in range(0, int(lengths.max(initial=0)), 8):
        reaches = lengths > at
        longer = slice(None) if reaches.all() else np.flatnonzero(reaches)
        unused = np.uint64(8) * np.maximum(8 + at - lengths[longer], 0).astype(np.uint64)
        taken = (words[starts[longer] + at] << unused) >> unused
        mixed = (hashes[longer] ^ taken) * _MIX
        hashes[longer] = mixed ^ (mixed >> np.uint64(32))
    return hashes
