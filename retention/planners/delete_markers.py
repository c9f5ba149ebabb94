"""Planning of subject-delete markers from the verdicts of a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.read_count import ReadCount
from retention.core.spans import Array
from retention.plan.removed_ranges import settled_counts
from retention.planners.rows import SpanRowsReader
from retention.rules import RULES
from retention.rules.fold import Evaluation, Vetoed
from retention.rules.jetstream import delete_markers
from retention.rules.jetstream.delete_markers import DEATHS, LimitTotals
from retention.rules.jetstream.evaluate import ORDER, rules_of
from retention.rules.jetstream.marker_replay import replay
from retention.rules.row_verdicts import (
    STAYS,
    Answer,
    Question,
    SpanRows,
    judge,
    removed_ranges,
    settled,
    stop_of,
)
from retention.rules.rule import ExpiryRule
from retention.rules.veto import any_kept
from retention.schemas.empty import empty_table
from retention.schemas.plan import PLANNED_MARKERS

_EXPIRY = list(dict.fromkeys(RULES.index(rule.name) for rule in ORDER if rule.expires))
"""The rules with announced removals, in the order of a pass, after all other rules."""
_BEFORE = [RULES.index(rule.name) for rule in ORDER if not rule.expires]
"""The rules before them."""


@dataclass(frozen=True)
class MarkedPass:
    """A pass with its delete markers."""

    vetoed: Vetoed
    markers: pa.Table
    """The markers that remain after the pass; shape `PLANNED_MARKERS`."""
    sequences: tuple[int, int] | None
    """The first sequence used by markers (also evicted ones), and the next after the last; None: none was stored."""
    read: ReadCount
    refused: frozenset[int] = frozenset()
    """Sequences of messages kept because no marker could be stored for them."""


@dataclass(frozen=True)
class ExpiredSubjects:
    """The effect of expiry on one span, by subject."""

    deaths: pa.Table
    """Shape `DEATHS`."""
    staying: pa.Array
    """Subjects with a message kept in the span, string."""
    read: ReadCount


def without_markers(vetoed: Vetoed) -> MarkedPass:
    """A pass over a stream without delete markers."""
    return MarkedPass(vetoed, empty_table(PLANNED_MARKERS), None, ReadCount())


@dataclass(frozen=True)
class MarkerPlanner:
    """The planner of the delete markers of one pass."""

    policy: Policy
    as_of_ns: int
    next_seq: int
    counts: Callable[[], pa.Table]
    """Reads the subject digests of all files."""
    asks: SpanRowsReader

    def announce(self, vetoed: Vetoed) -> MarkedPass:
        """Add the markers; if they evict messages or are refused, decide the pass again, by rows.

        Raises:
            DamagedError: a file cannot be read.
        """
        decided = vetoed.decided
        losses = _SpanLosses.of(decided, vetoed.answers)
        if not losses.by_rule[:, _EXPIRY].any():
            return without_markers(vetoed)
        expired = self._expired(decided, losses)
        read = sum((subjects.read for subjects in expired), ReadCount())
        candidates = delete_markers.candidates(
            pa.concat_tables([empty_table(DEATHS), *(subjects.deaths for subjects in expired)]),
            pa.concat_arrays(
                [pa.array([], pa.string()), *(subjects.staying for subjects in expired)]
            ),
        )
        if delete_markers.all_fit(candidates, self.policy, losses.left_by_limits(decided)):
            stored = delete_markers.numbered(candidates, self.next_seq)
            used = self._used(self.next_seq + stored.num_rows)
            return MarkedPass(vetoed, stored, used, read)
        return self._replayed(vetoed, read)

    def _expired(self, decided: Evaluation, losses: _SpanLosses) -> list[ExpiredSubjects]:
        """Find the fate of each subject: from digests if a span loses nothing or all, otherwise from rows."""
        by_scan = losses.by_rule[:, _EXPIRY]
        lost = losses.by_rule.sum(axis=1)
        whole = lost == decided.spans.messages
        plain = (by_scan == decided.spans.messages[:, None]) & (decided.spans.markers == 0)[:, None]
        rows_tell = (lost > 0) & ~plain.any(axis=1) & ~(whole & (by_scan.sum(axis=1) == 0))
        from_rows: list[ExpiredSubjects] = []
        for was_reached in (True, False):
            numbers = np.flatnonzero(rows_tell & (losses.reached == was_reached))
            questions = [replace(decided.question(int(span)), in_full=True) for span in numbers]
            from_rows += self.asks(
                partial(expire_span, reached=was_reached), decided.spans, questions
            )
        return [*from_rows, self._digested(decided, plain, lost == 0)]

    def _digested(self, decided: Evaluation, dying: Array, untouched: Array) -> ExpiredSubjects:
        counts = self.counts()
        span = decided.spans.span_of_file[counts["file"].to_numpy()]
        parts = [
            _deaths(counts.filter(pa.array(dying[span, scan])), scan)
            for scan in range(len(_EXPIRY))
        ]
        staying = counts.filter(pa.array(untouched[span]))["subject"]
        return ExpiredSubjects(pa.concat_tables(parts), pc.unique(staying), ReadCount())

    def _used(self, after: int) -> tuple[int, int] | None:
        return (self.next_seq, after) if after > self.next_seq else None

    def _replayed(self, vetoed: Vetoed, read: ReadCount) -> MarkedPass:
        decided, spans = vetoed.decided, vetoed.decided.spans
        questions = [
            replace(decided.question(span).before_expiry, in_full=True)
            for span in range(len(spans))
        ]
        by_span = self.asks(limit_span, spans, questions)
        rows = pa.concat_tables([span.rows for span, _, _ in by_span])
        verdicts = np.concatenate([span_verdicts for _, span_verdicts, _ in by_span])
        kept = np.concatenate([span_kept for _, _, span_kept in by_span])
        # Spans decided by deadlines alone are single files, and may interleave.
        order = np.argsort(rows["seq"].to_numpy(), kind="stable")
        expiry = [
            rule.everywhere()
            for rule in rules_of(self.policy, self.as_of_ns)
            if isinstance(rule, ExpiryRule)
        ]
        in_order = rows.take(pa.array(order))
        done = replay(in_order, verdicts[order], kept[order], self.policy, expiry, self.next_seq)
        verdicts[order] = done.verdicts
        ends = np.cumsum([span.rows.num_rows for span, _, _ in by_span])[:-1]
        parts = np.split(verdicts, ends)
        answers = [
            Answer(number, removed_ranges(span, part), None, span.read)
            for number, ((span, _, _), part) in enumerate(zip(by_span, parts, strict=True))
        ]
        refused = frozenset(done.refused.tolist())
        replayed = replace(decided, ask=np.ones(len(spans), dtype=bool))
        used = self._used(done.next_seq)
        return MarkedPass(
            replace(vetoed, decided=replayed, answers=answers), done.markers, used, read, refused
        )


def expire_span(span: SpanRows, question: Question, *, reached: bool) -> ExpiredSubjects:
    """Find the effect of expiry on the subjects of one span.

    Args:
        span: its rows.
        question: the pass's question to the span.
        reached: whether the age scan reaches the span.
    """
    verdicts = settled(judge(span.rows, question)[0], reached=reached)
    verdicts = np.where(any_kept(question.vetoes, span.rows), STAYS, verdicts)
    parts = [
        _last_of_subjects(span.rows.filter(pa.array(verdicts == rule)), scan)
        for scan, rule in enumerate(_EXPIRY)
    ]
    staying = span.rows.filter(pa.array(verdicts == STAYS))["subject"]
    return ExpiredSubjects(pa.concat_tables(parts), pc.unique(staying), span.read)


def limit_span(span: SpanRows, question: Question) -> tuple[SpanRows, Array, Array]:
    """Apply the limits before expiry to the rows of one span; returns them, their verdicts, and a mask of kept ones."""
    return span, judge(span.rows, question)[0], any_kept(question.vetoes, span.rows)


def _last_of_subjects(rows: pa.Table, scan: int) -> pa.Table:
    """The row with the highest sequence of each subject; shape `DEATHS`.

    Rows of the subjects a, b, a, c have the indices 0, 1, 0, 2; the last row written to an index
    wins, so `last` is 2, 1, 3.
    """
    encoded = pc.dictionary_encode(rows["subject"].combine_chunks())
    last = np.zeros(len(encoded.dictionary), dtype=np.int64)
    last[encoded.indices.to_numpy()] = np.arange(rows.num_rows)
    ends = rows.take(pa.array(last))
    silent = pc.fill_null(ends["marker"], False)  # noqa: FBT003
    return _shaped(ends["subject"], scan, ends["seq"], silent)


def _deaths(counts: pa.Table, scan: int) -> pa.Table:
    silent = pa.array(np.zeros(counts.num_rows, dtype=bool))
    return _shaped(counts["subject"], scan, counts["last_seq"], silent)


def _shaped(
    subject: pa.ChunkedArray, scan: int, last_seq: pa.ChunkedArray, silent: pa.Array
) -> pa.Table:
    scans = pa.array(np.full(len(subject), scan), pa.int8())
    return pa.table([subject, scans, last_seq, silent], names=DEATHS.names).cast(DEATHS)


@dataclass(frozen=True)
class _SpanLosses:
    """Losses of each span in a pass."""

    by_rule: Array
    """Messages that each rule removes; shape (spans, rules)."""
    bytes_by_limits: Array
    """Lower bound on the bytes of each span removed by limits before expiry."""
    reached: Array
    """A mask of the spans that the age scan reaches."""

    @classmethod
    def of(cls, decided: Evaluation, answers: Sequence[Answer]) -> _SpanLosses:
        spans = decided.spans
        stopped_at = stop_of(answers)
        by_rule = decided.by_rule(stopped_at)
        whole_by_limits = by_rule[:, _BEFORE].sum(axis=1) == spans.messages
        heavy = np.where(whole_by_limits, spans.bytes, 0)
        for answer in answers:
            counts = settled_counts(answer, stopped_at)
            np.add.at(
                by_rule[answer.span], counts["rule"].to_numpy(), counts["messages"].to_numpy()
            )
            limits = counts.filter(pa.array(np.isin(counts["rule"].to_numpy(), _BEFORE)))
            heavy[answer.span] += pc.sum(limits["bytes"], min_count=0).as_py()
        end = len(spans) if stopped_at is None else stopped_at + 1
        return cls(by_rule, heavy, np.arange(len(spans)) < end)

    def left_by_limits(self, decided: Evaluation) -> LimitTotals:
        """Upper bounds on the totals when expiry begins."""
        gone = int(self.by_rule[:, _BEFORE].sum())
        return LimitTotals(
            int(decided.spans.messages.sum()) - gone,
            int(decided.spans.bytes.sum() - self.bytes_by_limits.sum()),
        )
