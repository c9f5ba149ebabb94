"""Per-message TTL: remove every message past its deadline, anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.core.units import format_instant
from retention.rules import MSG_TTL
from retention.rules.facts import Facts, spell_age
from retention.rules.rule import Decision, ExpiryRule, PriorRemovals, RowRule, SubjectFacts
from retention.rules.setting import Setting, Switch
from retention.schemas.deadlines import NEVER


@dataclass(frozen=True)
class MsgTtl(ExpiryRule):
    """A message is removed if its deadline exists and is `<= due_ns` (NATS STREAM.UPDATE order, step 5b; ADR-43)."""

    name: ClassVar[str] = MSG_TTL
    setting: ClassVar[Setting] = Switch("allow_msg_ttl", "allow_msg_ttl", "ns")
    due_ns: int
    """The pass's instant, nanoseconds since the epoch."""

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule at the instant; None if deadlines are ignored."""
        del subjects
        return cls(as_of_ns) if policy.allow_msg_ttl else None

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule is on, because deadlines may pass anywhere."""
        return policy.allow_msg_ttl

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the message's deadline has passed."""
        deadline_ns = facts.deadline_ns
        return policy.allow_msg_ttl and deadline_ns is not None and deadline_ns <= facts.as_of_ns

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The instant at which the deadline passes."""
        return f"{cls.name}{_line(facts)}" if policy.allow_msg_ttl else None

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """A reason without a number, because each message has its own deadline."""
        del policy, as_of_ns
        return ", outlived their own TTL"

    def decide(self, spans: Spans, before: PriorRemovals) -> MsgTtlDecision:
        """Spans with only passed deadlines are removed; spans with some need their rows."""
        any_due = (spans.deadlines > 0) & (spans.min_deadline_ns <= self.due_ns)
        all_due = (spans.deadlines == spans.messages) & (spans.max_deadline_ns <= self.due_ns)
        whole = any_due & all_due
        return MsgTtlDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole & ~before.unclear,
            rows=any_due & ~whole & ~before.gone,
            counted=np.zeros_like(spans.messages),
            unclear=np.zeros_like(whole),
        )

    def everywhere(self) -> RowRule:
        """Deadlines, row by row."""
        return Passed(self.due_ns)

    def most(self, spans: Spans) -> Array:
        """Every message with a deadline, if one has passed."""
        any_due = (spans.deadlines > 0) & (spans.min_deadline_ns <= self.due_ns)
        return np.where(any_due, spans.deadlines, 0)

    def first_due(self, spans: Spans) -> Array:
        """The first deadline."""
        return spans.min_deadline_ns

    def segment_due(self, segments: Spans, *, alone: bool) -> Array:
        """The last deadline, if no other rule takes a message."""
        return segments.max_deadline_ns if alone else segments.min_deadline_ns


@dataclass(frozen=True, kw_only=True)
class MsgTtlDecision(Decision):
    """The decision of statistics about deadlines."""

    rule: MsgTtl

    def question(self, span: int) -> RowRule:
        """The question for deadlines that have passed."""
        del span
        return self.rule.everywhere()

    def bounds(self) -> tuple[Array, Array]:
        """At least zero, because a message with a passed deadline may be removed already; at most `MsgTtl.most`."""
        return np.zeros_like(self.spans.messages), self.rule.most(self.spans)


@dataclass(frozen=True)
class Passed(RowRule):
    """The rows with a passed deadline."""

    due_ns: int
    rule = MSG_TTL
    expires = True
    columns = ("deadline_ns",)

    def takes(self, rows: pa.Table) -> Array:
        """Rows with a passed deadline; the deadline of `never` is after every instant."""
        return pc.fill_null(rows["deadline_ns"], NEVER).to_numpy() <= self.due_ns


def _line(facts: Facts) -> str:
    if facts.deadline_ns is None:
        return ": it has no Nats-TTL"
    if facts.deadline_ns == NEVER:
        return ": its Nats-TTL is never"
    if facts.deadline_ns < facts.ts_ns:
        return ": its Nats-TTL ends after the year 2262, which the server treats as long past"
    lived, deadline = facts.as_of_ns - facts.deadline_ns, format_instant(facts.deadline_ns)
    if lived < 0:
        return f": its Nats-TTL ends at {deadline}, in {spell_age(-lived)}"
    return f": its Nats-TTL ended at {deadline}, {spell_age(lived)} ago"
