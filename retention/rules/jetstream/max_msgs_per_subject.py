"""MaxMsgsPerSubject: keep the highest sequences of each subject, up to the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.integer_sort import distinct_in_order
from retention.core.policy import Policy
from retention.core.seq_ranges import places_of
from retention.core.spans import Array, Spans
from retention.errors import DamagedError
from retention.rules import MAX_MSGS_PER_SUBJECT
from retention.rules.facts import Facts, messages_are
from retention.rules.rule import (
    Decision,
    PriorRemovals,
    RowRule,
    Rule,
    SubjectExcess,
    SubjectFacts,
    SubjectSource,
)
from retention.rules.setting import Setting

_RANGE_ROWS = 65_536
"""The subjects to number at once; a table of this size fits into a processor's cache."""
_MOST_CUTS = 16_384
_NO_SUBJECTS = pa.nulls(0, pa.string())


@dataclass(frozen=True)
class MaxMsgsPerSubject(Rule):
    """At most `limit` messages of each subject are kept (NATS STREAM.UPDATE order, step 4)."""

    name: ClassVar[str] = MAX_MSGS_PER_SUBJECT
    setting: ClassVar[Setting] = Setting("max_msgs_per_subject", "max_msgs_per_subject", "messages")
    limit: int
    surplus: SubjectExcess

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule of the policy's limit; None if subjects are unlimited."""
        del as_of_ns
        limit, surplus = policy.max_msgs_per_subject, subjects.excess
        return None if limit is None or surplus is None else cls(limit, surplus)

    @classmethod
    def find_subjects(
        cls, policy: Policy, as_of_ns: int, source: SubjectSource, subjects: SubjectFacts
    ) -> SubjectFacts:
        """Find the messages beyond the limit."""
        del as_of_ns
        limit = policy.max_msgs_per_subject
        return subjects if limit is None else replace(subjects, excess=source.excess(limit))

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule is on, because a newer message of a subject may be anywhere."""
        return policy.max_msgs_per_subject is not None

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether at least `limit` messages on the subject are newer."""
        limit = policy.max_msgs_per_subject
        return limit is not None and facts.newer_on_subject >= limit

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The number of newer messages on the subject."""
        limit = policy.max_msgs_per_subject
        if limit is None:
            return None
        return f"{cls.name} {limit:,}: {messages_are(facts.newer_on_subject)} newer on its subject"

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The number of newer messages on the subject at which the limit removes a message."""
        del as_of_ns
        limit = policy.max_msgs_per_subject or 0
        return f" {limit:,}, {limit:,} or more on the subject are newer"

    def decide(self, spans: Spans, before: PriorRemovals) -> MaxMsgsPerSubjectDecision:
        """Count removals by subject digests; a head trim that ends in a span may remove some of the same messages."""
        counted = self.surplus.messages
        whole = ~before.gone & ~before.unclear & (counted == spans.messages)
        nowhere = np.zeros(len(spans), dtype=bool)
        return MaxMsgsPerSubjectDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole,
            rows=nowhere,
            counted=counted,
            unclear=nowhere,
        )


@dataclass(frozen=True, kw_only=True)
class MaxMsgsPerSubjectDecision(Decision):
    """The decision of digests about subjects."""

    rule: MaxMsgsPerSubject

    def question(self, span: int) -> RowRule | None:
        """The question for messages beyond the limit, if the span has any."""
        return self.rule.surplus.of_span(span) if self.counted[span] > 0 else None

    def bounds(self) -> tuple[Array, Array]:
        """Exactly the messages that digests count."""
        return self.counted, self.counted

    def ordered(self) -> Array:
        """A mask of spans in which a subject loses its lowest messages."""
        return self.counted > 0


class _OfSubjects(RowRule):
    """The limit's rule for the rows of a span, in any encoding."""

    rule = MAX_MSGS_PER_SUBJECT


@dataclass(frozen=True)
class KeepCounts(_OfSubjects):
    """The kept messages of one span, by the shorter of two lists of subjects."""

    columns = ("subject",)
    subjects: pa.Array
    """Subjects of the span, string."""
    counts: Array
    """For each subject: the number of its lowest messages to remove, or of its highest to keep."""
    stay: bool
    """Whether `counts` are messages to keep; then all messages of other subjects are removed.

    Otherwise they are kept.
    """

    def takes(self, rows: pa.Table) -> Array:
        """Rows beyond the limit of their subject."""
        codes = pc.fill_null(pc.index_in(rows["subject"], value_set=self.subjects), -1).to_numpy()
        listed = np.append(self.counts, 0)
        if self.stay:
            return _rank(codes[::-1])[::-1] >= listed[codes]
        return _rank(codes) < listed[codes]


@dataclass(frozen=True)
class KeepLast(_OfSubjects):
    """The kept messages of a span in which no subject keeps more than its last one."""

    seqs: Array
    """Sequences of these last messages, ascending; all others of the span are removed."""

    def takes(self, rows: pa.Table) -> Array:
        """All rows except these last messages.

        Raises:
            DamagedError: a message to keep is missing.
        """
        return _all_but(self.seqs, rows["seq"].to_numpy())


@dataclass(frozen=True)
class StoredShare(_OfSubjects):
    """The kept messages of a span, in a file, because no process can hold the subjects of all spans."""

    place: str
    """The file."""
    span: int

    def takes(self, rows: pa.Table) -> Array:
        """Raise an error: the subjects must be fetched first."""
        raise TypeError(f"span {self.span}: stored counts must be fetched before rows are judged")


@dataclass(frozen=True)
class SpanSubjects:
    """The messages of one span on each of its subjects; one entry per subject."""

    subjects: pa.Array
    messages: Array
    last_seq: Array
    beyond: Array
    """The number of messages beyond the limit."""

    def share(self) -> KeepCounts | KeepLast:
        """The limit's rule for the rows of the span."""
        left = self.messages - self.beyond
        keeps = left > 0
        if int(left.max(initial=0)) <= 1:
            return KeepLast(distinct_in_order(self.last_seq[np.flatnonzero(keeps)]))
        loses = self.beyond > 0
        stay = int(keeps.sum()) < int(loses.sum())
        listed = keeps if stay else loses
        counts = (left if stay else self.beyond)[listed]
        return KeepCounts(self.subjects.filter(pa.array(listed)), counts, stay)


@dataclass(frozen=True)
class Excess:
    """The excess of each span over the limit."""

    messages: Array
    """Surplus messages of each span, int64."""
    held: tuple[SpanSubjects, ...]
    subjects: int
    """The number of all subjects."""

    def of_span(self, span: int) -> KeepCounts | KeepLast:
        """The limit's rule for the rows of one span."""
        return self.held[span].share()


def surplus(limit: int, counts: pa.Table, span_of_file: Array, spans: int) -> Excess:
    """Find the exact surplus of every span from subject digests alone (NATS STREAM.UPDATE order, step 4).

    One subject with a limit of 3 messages, counted from the newest span to the oldest:

        span        0   1   2
        messages    4   2   2
        newer       4   2   0
        beyond      4   1   0   (newer + messages - 3, from 0 to messages)

    Args:
        limit: the maximum number of messages per subject.
        counts: `file` int64, ascending; `subject` string, once per file, sorted within it;
            `messages` and `last_seq` int64.
        span_of_file: the span of each file.
        spans: the number of spans.
    """
    held, known = tuple(_by_span(counts, span_of_file, spans)), 0
    for cut in _ranges([span.subjects for span in held]):
        parts = [
            (span, part) for span, part in zip(held, cut, strict=True) if part.stop > part.start
        ]
        codes, subjects = _numbered([span.subjects[part] for span, part in parts])
        known += subjects
        runs = [span.messages[part] for span, part in parts]
        of_runs = _but_last(codes, runs) if limit == 1 else _beyond(limit, codes, runs)
        for (span, part), beyond in zip(parts, of_runs, strict=True):
            span.beyond[part] = beyond
    totals = np.array([int(span.beyond.sum()) for span in held], dtype=np.int64)
    return Excess(totals, held, known)


def _beyond(limit: int, codes: Array, runs: Sequence[Array]) -> list[Array]:
    """The messages beyond the limit on each subject of several runs, the oldest run first.

    >>> _beyond(3, np.array([0, 1, 0]), [np.array([4, 9]), np.array([2])])
    [array([3, 6]), array([0])]

    Args:
        limit: the maximum number of messages per subject.
        codes: the number of the subject of each row of all runs; a subject is once in a run.
        runs: the number of messages in each row of a run.
    """
    newer = np.zeros(codes.max(initial=-1) + 1, dtype=np.int64)
    newest_first = []
    for numbers, messages in reversed(list(zip(_cut_as(runs, codes), runs, strict=True))):
        # Converted once, and not for each use.
        at = numbers.astype(np.intp)
        newer[at] = counted = newer[at] + messages
        # NumPy's `clip` takes longer for few rows.
        newest_first.append(np.minimum(np.maximum(counted - limit, 0), messages))
    return newest_first[::-1]


def _but_last(codes: Array, runs: Sequence[Array]) -> list[Array]:
    """The same under a limit of one: all messages but one of the last row of each subject."""
    at, rows = codes.astype(np.intp), np.arange(len(codes), dtype=np.int32)
    last = np.zeros(codes.max(initial=-1) + 1, dtype=np.int32)
    # Of equal indices, the last one stays assigned.
    last[at] = rows
    messages = np.concatenate([np.zeros(0, dtype=np.int64), *runs])
    messages -= last[at] == rows
    return _cut_as(runs, messages)


def _cut_as(runs: Sequence[Array], values: Array) -> list[Array]:
    """Values of all rows of several runs, cut like these."""
    edges = np.cumsum([0, *map(len, runs)]).tolist()
    return [values[start:end] for start, end in pairwise(edges)]


def _all_but(last: Array, seqs: Array) -> Array:
    at = np.minimum(places_of(seqs, last), len(seqs) - 1)
    absent = seqs[at] != last
    if absent.any():
        raise DamagedError(
            f"message {last[absent][0]} is the last of its subject by the subject digest, and is not in the data "
            "file; nothing was changed; delete `_retention/subjects` of the stream, which is rebuilt, and plan again"
        )
    goes = np.ones(len(seqs), dtype=bool)
    goes[at] = False
    return goes


def _by_span(counts: pa.Table, span_of_file: Array, spans: int) -> Iterator[SpanSubjects]:
    """The subjects of each span, with no message beyond the limit yet."""
    of_file = pc.value_counts(counts["file"])
    lengths = np.zeros(spans, dtype=np.int64)
    np.add.at(
        lengths,
        span_of_file[of_file.field("values").to_numpy()],
        of_file.field("counts").to_numpy(),
    )
    several = np.bincount(span_of_file, minlength=spans) > 1
    columns = (_cut(counts[name], lengths.tolist()) for name in ("subject", "messages", "last_seq"))
    for span, part in enumerate(zip(*columns, strict=True)):
        names, messages, last_seq = _merged(part) if several[span] else part
        beyond = np.zeros(len(names), dtype=np.int64)
        yield SpanSubjects(names, messages.to_numpy(), last_seq.to_numpy(), beyond)


def _cut(column: pa.ChunkedArray, lengths: list[int]) -> Iterator[pa.Array]:
    """A column in pieces of these lengths; a piece within a chunk is not copied."""
    chunks = column.chunks
    begins, starts = (np.cumsum([0, *each]) for each in (map(len, chunks), lengths))
    # A slice of the whole column would pass over all chunks before it.
    first = np.searchsorted(begins, starts[:-1], "right") - 1
    after = np.searchsorted(begins, starts[1:], "left")
    offsets = starts[:-1] - begins[first]
    for begin, end, offset, length in zip(first, after, offsets, lengths, strict=True):
        piece = pa.chunked_array(chunks[begin:end], column.type).slice(offset, length)
        yield piece.chunk(0) if piece.num_chunks == 1 else piece.combine_chunks()


def _merged(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Merge the digests of several files of one span."""
    table = pa.table(dict(zip(("subject", "messages", "last_seq"), columns, strict=True)))
    folded = table.group_by("subject").aggregate([("messages", "sum"), ("last_seq", "max")])
    folded = folded.sort_by("subject").combine_chunks()
    return [
        pa.concat_arrays([pa.nulls(0, column.type), *column.chunks]) for column in folded.columns
    ]


def _ranges(runs: list[pa.Array]) -> Iterator[list[slice]]:
    """Cut sorted runs of subjects into aligned ranges: each range covers the same interval of subjects in every run."""
    wanted = sum(len(run) for run in runs) // _RANGE_ROWS
    count = max(1, min(wanted, _MOST_CUTS // max(len(runs), 1)))
    longest = max(runs, key=len, default=_NO_SUBJECTS)
    bounds = longest.take(
        pa.array([len(longest) * at // count for at in range(1, count)], pa.int64())
    )
    starts = [[0, *pc.search_sorted(run, bounds).to_pylist(), len(run)] for run in runs]
    for at in range(count):
        yield [slice(places[at], places[at + 1]) for places in starts]


def _numbered(runs: list[pa.Array]) -> tuple[Array, int]:
    """Number the subjects of several runs consistently; returns the numbers, and the number of subjects."""
    encoded = pa.concat_arrays([_NO_SUBJECTS, *runs]).dictionary_encode()
    return encoded.indices.to_numpy(), len(encoded.dictionary)


def _rank(codes: Array) -> Array:
    """Count the equal `codes` before each entry.

    >>> _rank(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=np.iinfo(np.int32).min))
    in_group = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = in_group
    return rank
