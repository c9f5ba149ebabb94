"""One pass over a stream in the server's order, as far as metadata decides it, and the questions that remain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.rules import MAX_AGE, MAX_BYTES, MAX_MSGS, MAX_MSGS_PER_SUBJECT, MSG_TTL, RULES
from retention.rules.jetstream.max_age import AgeScan, age_scan
from retention.rules.jetstream.max_msgs_bytes import HeadCut, head_cut
from retention.rules.jetstream.max_msgs_per_subject import Beyond
from retention.rules.jetstream.msg_ttl import TtlScan, ttl_scan
from retention.rules.row_verdicts import Question

_NO_CUT = HeadCut(limit=0, total=0, whole=0, rest=0)


@dataclass(frozen=True)
class OnePass:
    """The pass, decided per span where metadata can."""

    spans: Spans
    by_messages: HeadCut
    by_bytes: HeadCut
    surplus: Beyond | None
    age: AgeScan | None
    ttl: TtlScan | None
    below: Array
    """Spans that head trims take whole; a mask, a prefix."""
    spent: Array
    """Spans that the limit per subject takes whole; a mask."""
    ask: Array
    """Spans whose rows decide; a mask."""
    held: Array | None = None
    """Spans that stay whole although rules would take them; a mask; None: none does."""

    def question(self, span: int) -> Question:
        """What the rules ask of the rows of any span, also of one that metadata decided."""
        some = self.surplus is not None and self.surplus.messages[span] > 0
        return Question(
            span=span,
            lose_messages=_share(self.by_messages, span, self.spans.messages),
            lose_bytes=_share(self.by_bytes, span, self.spans.bytes),
            surplus=self.surplus.of_span(span) if some and self.surplus is not None else None,
            cutoff_ns=self.age.cutoff_ns
            if self.age is not None and span < self.age.reach
            else None,
            due_ns=self.ttl.due_ns if self.ttl is not None else None,
        )

    def whole(self, stopped_at: int | None) -> Array:
        """Spans that go whole by metadata, once it is known where the age scan ended; a mask.

        Args:
            stopped_at: the first asked span whose rows end the scan; None: only metadata ends it.
        """
        gone = self.below | self.spent | self._aged(stopped_at)
        if self.ttl is not None:
            gone = gone | self.ttl.whole
        if self.held is not None:
            gone = gone & ~self.held
        return gone & ~self.ask

    def _aged(self, stopped_at: int | None) -> Array:
        """Spans of which the age scan takes whatever other rules leave; a mask."""
        if self.age is None:
            return np.zeros(len(self.spans), dtype=bool)
        end = len(self.spans) if stopped_at is None else stopped_at
        return self.age.whole & (np.arange(len(self.spans)) < end)

    def by_rule(self, stopped_at: int | None) -> Array:
        """Messages that each rule takes of each span that goes whole; shape (spans, rules).

        Args:
            stopped_at: as in `whole`.
        """
        whole, aged = self.whole(stopped_at), self._aged(stopped_at)
        counts = np.zeros((len(self.spans), len(RULES)), dtype=np.int64, order="F")
        numbers = np.arange(len(self.spans))
        counted = np.where(numbers < self.by_messages.whole, self.spans.messages, 0)
        if self.by_messages.whole < len(self.spans) and self.below[self.by_messages.whole]:
            counted[self.by_messages.whole] = self.by_messages.rest
        own = np.zeros_like(counted) if self.surplus is None else self.surplus.messages
        left = self.spans.messages - counted
        counts[:, RULES.index(MAX_MSGS)] = counted
        counts[:, RULES.index(MAX_BYTES)] = np.where(self.below, left, 0)
        counts[:, RULES.index(MAX_MSGS_PER_SUBJECT)] = np.where(self.below, 0, own)
        counts[:, RULES.index(MAX_AGE)] = np.where(~self.below & aged, left - own, 0)
        counts[:, RULES.index(MSG_TTL)] = np.where(~self.below & ~aged, left - own, 0)
        counts *= whole[:, None]
        return counts


def one_pass(spans: Spans, policy: Policy, as_of_ns: int, beyond: Beyond | None) -> OnePass:
    """Decide what metadata can (NATS STREAM.UPDATE from an unlimited config; docs/semantics/limits.md).

    Args:
        spans: the stream.
        policy: what lets messages go.
        as_of_ns: the pass's one instant.
        beyond: what each span holds beyond the limit per subject; None if the policy has none.
    """
    trims_head = policy.discard == "old"
    by_messages = _cut(policy.max_msgs if trims_head else None, spans.messages)
    by_bytes = _cut(policy.max_bytes if trims_head else None, spans.bytes)
    start = max(by_messages.whole, by_bytes.whole)
    numbers = np.arange(len(spans))
    boundary = (numbers >= start) & (
        _falls_into(by_messages, numbers) | _falls_into(by_bytes, numbers)
    )
    below = numbers < start
    taken = np.zeros(len(spans), dtype=np.int64) if beyond is None else beyond.messages
    spent = ~below & ~boundary & (taken == spans.messages)
    touched = ~below & ~spent & (boundary | (taken > 0))
    age = ttl = None
    asked_by_age = sure = np.zeros(len(spans), dtype=bool)
    if policy.max_age_ns is not None:
        age = age_scan(as_of_ns - policy.max_age_ns, spans, below | spent, touched)
        asked_by_age = age.ask
        sure = _surely_whole(age, spans, touched & ~age.whole, boundary)
    rows_due = np.zeros(len(spans), dtype=bool)
    if policy.allow_msg_ttl:
        ttl = ttl_scan(as_of_ns, spans)
        sure = sure | (ttl.whole & ~boundary)
        rows_due = ttl.some & ~below & ~spent
    ask = asked_by_age | ((touched | rows_due) & ~sure)
    return OnePass(spans, by_messages, by_bytes, beyond, age, ttl, below, spent, ask)


def _cut(limit: int | None, amounts: Array) -> HeadCut:
    return _NO_CUT if limit is None else head_cut(limit, amounts)


def _falls_into(cut: HeadCut, numbers: Array) -> Array:
    return (numbers == cut.whole) & (cut.rest > 0)


def _surely_whole(age: AgeScan, spans: Spans, doubtful: Array, boundary: Array) -> Array:
    """Spans that expire whole whatever the rows of others say: no span before them may end the scan."""
    may_stop = np.flatnonzero(doubtful & (spans.max_ts_ns > age.cutoff_ns))
    first = int(may_stop[0]) if len(may_stop) else len(spans)
    return age.whole & ~boundary & (np.arange(len(spans)) < first)


def _share(cut: HeadCut, span: int, amounts: Array) -> int:
    """How much of a span a head trim takes."""
    if span == cut.whole:
        return cut.rest
    return int(amounts[span]) if span < cut.whole else 0
