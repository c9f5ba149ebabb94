"""The limit per subject for more subjects than fit into one process: digests are shuffled by range of subjects.

Digests are sorted by subject, so a sample of their subjects divides them into ranges of about one
length, and tasks cut them there. Tasks then decide the removals of each span range by range, and
collect them span by span. They hold one range or one span in memory at a time, for any size of
stream. Only totals by span return to the driver; the removals of each span are stored in a file
until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.integer_sort import distinct_in_order
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.neighbours import runs_within
from retention.core.spans import Array, Spans
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
RANGE_BYTES = 16 << 20
"""The approximate length of digests per range; they take several times as much in memory."""
SAMPLES = 64
"""The subjects of a sample per range."""

DEALT = pa.schema(
    [
        pa.field("file", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("messages", pa.int64()),
        pa.field("last_seq", pa.int64()),
    ]
)
"""Digests to shuffle: `file` is the number of a file with remaining messages, ascending."""

_HALVES = ("low", "high")
_CUT = pa.schema([*list(DEALT)[:-1], *(pa.field(half, pa.uint32()) for half in _HALVES)])
"""`DEALT` with the halves of `last_seq`, for which LZ4 takes a tenth of the time."""
_DECIDED = pa.schema([*list(DEALT)[1:], pa.field("beyond", pa.int64())])
_KEEP_LAST = pa.schema([pa.field("seq", pa.int64())])
_KEEP_COUNTS = pa.schema([pa.field("subject", pa.string()), pa.field("count", pa.int64())])
_STAY, _GO = {b"counts": b"stay"}, {b"counts": b"go"}
_NO_SUBJECTS = pa.nulls(0, pa.string())
Asked = TypeVar("Asked")

_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo one, are evenly spread, also within equal parts of the interval."""


@dataclass(frozen=True)
class DealTask:
    """A task: the digests of neighbouring files, to cut into ranges of subjects."""

    files: tuple[DataFile, ...]
    first: RemainingRow
    """The first file's row number among the remaining files; the others follow it."""
    messages: tuple[int, ...]
    """The number of messages in each file."""
    digests: tuple[pa.Table | StoredDigest | None, ...]
    """The digest of a file's remaining messages, if some are released."""


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


def digests_of(task: DealTask) -> Iterator[pa.Table]:
    """The digest of each file of a task, shape `DEALT`, sorted by subject."""
    given = zip(task.files, task.messages, task.digests, strict=True)
    for at, (file, messages, digest) in enumerate(given):
        counted = subject_digests.digest_of(file, messages) if digest is None else digest_in(digest)
        numbers = pa.array(np.full(len(counted), task.first + at), pa.int64())
        yield counted.add_column(0, DEALT.field("file"), numbers).cast(DEALT).combine_chunks()


def sampled(read: Callable[[Task], Iterable[pa.Table]], sample: tuple[Task, int]) -> pa.Array:
    """A number of subjects, evenly spread over the rows of the digests of a task.

    Args:
        read: the digests of a task, shape `DEALT`.
        sample: the task, and the number.
    """
    task, wanted = sample
    subjects = pa.concat_tables([DEALT.empty_table(), *read(task)])["subject"]
    wanted = min(wanted, len(subjects))
    places = (np.arange(wanted) * _GOLDEN % 1 * len(subjects)).astype(np.int64)
    return subjects.take(pa.array(places)).combine_chunks()


def bounds_of(samples: Iterable[pa.Array], ranges: int) -> pa.Array:
    """The first subject of each range but the first, ascending; fewer ranges, if a few subjects have most rows.

    >>> bounds_of([pa.array(["a", "d"]), pa.array(["b", "c"])], 2).to_pylist()
    ['c']
    """
    subjects = pa.concat_arrays([_NO_SUBJECTS, *samples]).sort()
    ranges = min(ranges, len(subjects))
    places = [len(subjects) * number // ranges for number in range(1, ranges)]
    return subjects.take(pa.array(places, pa.int64())).unique()


def deal_subjects(
    read: Callable[[Task], Iterable[pa.Table]], bounds: pa.Array, task: Task
) -> Iterator[Part]:
    """Cut the digests of a task into ranges of subjects; contents are batches for `DecideRange`.

    Args:
        read: the digests of a task, shape `DEALT`, each sorted by subject.
        bounds: as from `bounds_of`.
        task: the digests to cut.
    """
    digests = [_halved(digest) for digest in read(task)]
    ends = [
        [0, *pc.search_sorted(digest["subject"].chunk(0), bounds).to_pylist(), len(digest)]
        for digest in digests
    ]
    for number in range(len(bounds) + 1):
        parts = [
            digest.slice(end[number], end[number + 1] - end[number])
            for digest, end in zip(digests, ends, strict=True)
            if end[number + 1] > end[number]
        ]
        if parts:
            yield number, packed(pa.concat_tables(parts))


@dataclass(frozen=True)
class DecideRange:
    """A function that decides the removals of each span in one range of subjects, and emits them by span.

    A part has the number of removed messages and identifies them: under a limit of one by the last
    kept message of each subject, otherwise by all subjects. A part for the key after the last span has the number of
    subjects in the range.
    """

    limit: int
    span_of_file: Array
    spans: int

    def __call__(self, number: int, contents: Sequence[bytes]) -> Iterator[Part]:
        """The parts of a range's spans; contents are batches of `deal_subjects`."""
        del number
        counts = _whole(unpacked(contents, _CUT))
        excess = surplus(self.limit, counts, self.span_of_file, self.spans)
        yield self.spans, _number(excess.subjects)
        for span, held in enumerate(excess.held):
            if len(held.messages):
                yield span, _number(int(held.beyond.sum())) + self._which(held)

    def _which(self, held: SpanSubjects) -> bytes:
        if self.limit > 1:
            columns = [held.subjects, held.messages, held.last_seq, held.beyond]
            return packed(pa.table(columns, schema=_DECIDED))
        return packed(pa.table([held.last_seq[held.beyond < held.messages]], schema=_KEEP_LAST))


@dataclass(frozen=True)
class GatherSpan:
    """A function that collects the removals of one span, and stores them in a file, or counts the subjects."""

    limit: int
    spans: int
    directory: str

    def __call__(self, span: int, contents: Sequence[bytes]) -> DecidedSpan | int:
        """The span, from parts of `DecideRange`, 0 if nothing of it is removed; or the number of subjects."""
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


@dataclass(frozen=True)
class Exchange:
    """A shuffle of digests between tasks: cut into ranges, decided range by range, and collected span by span."""

    engine: Engine
    decide: DecideRange
    directory: str
    """The directory for the files of spans with removals."""

    def excess(
        self,
        read: Callable[[Task], Iterable[pa.Table]],
        tasks: Sequence[Task],
        weights: Sequence[int],
    ) -> ShuffledExcess:
        """Count the removals of each span.

        Args:
            read: the digests of a task, shape `DEALT`, each sorted by subject; picklable.
            tasks: the digests, in the order of files.
            weights: the length of the digests of each task.
        """
        spans, limit = self.decide.spans, self.decide.limit
        wanted = [max(1, SAMPLES * weight // RANGE_BYTES) for weight in weights]
        samples = list(zip(tasks, wanted, strict=True))
        bounds = bounds_of(
            self.engine.map(partial(sampled, read), samples, weights),
            -(-sum(weights) // RANGE_BYTES),
        )
        decided = self.engine.shuffle(
            partial(deal_subjects, read, bounds),
            tasks,
            weights,
            Gathering(self.decide, len(bounds) + 1),
            Gathering(GatherSpan(limit, spans, self.directory), min(len(bounds) + 1, spans)),
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
    stored = left.stored
    data = opened.store.data_files(stored)
    messages = stored["messages"].to_pylist()
    deals = [
        DealTask(
            tuple(data[start:end]),
            RemainingRow(start),
            tuple(messages[start:end]),
            tuple(left.digests.get(RemainingRow(number)) for number in range(start, end)),
        )
        for start, end in runs_within(lengths, RANGE_BYTES)
    ]
    scratch = new_scratch(opened, engine)
    engines.at_end(scratch.close)
    decide = DecideRange(limit, spans.span_of_file, len(spans))
    return Exchange(engine, decide, scratch.location).excess(
        digests_of, deals, [sum(lengths[task.first :][: len(task.files)]) for task in deals]
    )


def _halved(digest: pa.Table) -> pa.Table:
    halves = digest["last_seq"].to_numpy().view(np.uint32).reshape(-1, 2).T
    return pa.table([*digest.columns[:-1], *map(np.ascontiguousarray, halves)], schema=_CUT)


def _whole(rows: pa.Table) -> pa.Table:
    halves = np.empty((len(rows), 2), dtype=np.uint32)
    for at, half in enumerate(_HALVES):
        halves[:, at] = rows[half].to_numpy()
    last_seq = pa.array(halves.view(np.int64).ravel())
    return rows.drop_columns(list(_HALVES)).append_column(DEALT.field("last_seq"), last_seq)


def _number(number: int) -> bytes:
    return number.to_bytes(8, "little")


def packed(table: pa.Table) -> bytes:
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
