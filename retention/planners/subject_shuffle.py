"""The limit per subject for more subjects than fit into one process: digests are shuffled by range of subjects.

Digests are sorted by subject, so a sample of their subjects divides them into ranges of about one
length, and tasks cut them there. Tasks then decide the removals of each span range by range, and
collect them span by span. They hold one range or one span in memory at a time, for any size of
stream. Only totals by span return to the driver; the removals of each span are stored in a file
until the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

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
from retention.planners import subject_ranges
from retention.planners.packed_rows import packed, unpacked
from retention.planners.scratch import new_scratch
from retention.planners.subject_ranges import (
    DEALT,
    Read,
    bounds_of,
    deal_subjects,
    dealt_rows,
    sampled,
)
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

_DECIDED = pa.schema([*list(DEALT)[1:], pa.field("beyond", pa.int64())])
_KEEP_LAST = pa.schema([pa.field("seq", pa.int64())])
_KEEP_COUNTS = pa.schema([pa.field("subject", pa.string()), pa.field("count", pa.int64())])
_STAY, _GO = {b"counts": b"stay"}, {b"counts": b"go"}
Asked = TypeVar("Asked")


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


def dealt_digest(task: DealTask, at: int) -> pa.Table:
    """The digest of one file of a task, shape `DEALT`, sorted by subject."""
    digest, messages = task.digests[at], task.messages[at]
    counted = (
        subject_digests.digest_of(task.files[at], messages) if digest is None else digest_in(digest)
    )
    numbers = pa.array(np.full(len(counted), task.first + at), pa.int64())
    return counted.add_column(0, DEALT.field("file"), numbers).cast(DEALT).combine_chunks()


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
        counts = dealt_rows(contents)
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
        self, read: Read[Task], tasks: Sequence[Task], lengths: Sequence[Sequence[int]]
    ) -> ShuffledExcess:
        """Count the removals of each span.

        Args:
            read: reads a digest; picklable.
            tasks: the digests, in the order of files.
            lengths: the length of each digest of each task.
        """
        spans, limit = self.decide.spans, self.decide.limit
        digests, weights = list(zip(tasks, lengths, strict=True)), list(map(sum, lengths))
        bounds = bounds_of(
            self.engine.map(partial(sampled, read), digests, weights),
            -(-sum(weights) // subject_ranges.RANGE_BYTES),
        )
        decided = self.engine.shuffle(
            partial(deal_subjects, read, bounds),
            digests,
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
        for start, end in runs_within(lengths, subject_ranges.RANGE_BYTES)
    ]
    scratch = new_scratch(opened, engine)
    engines.at_end(scratch.close)
    decide = DecideRange(limit, spans.span_of_file, len(spans))
    return Exchange(engine, decide, scratch.location).excess(
        dealt_digest, deals, [lengths[task.first :][: len(task.files)] for task in deals]
    )


def _number(number: int) -> bytes:
    return number.to_bytes(8, "little")


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
