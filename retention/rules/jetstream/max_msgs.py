"""MaxMsgs: remove the lowest sequences while the stream has more messages than its limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.rules import MAX_MSGS
from retention.rules.facts import REFUSES, Facts, messages_are
from retention.rules.jetstream.head_trim import HeadTrim, cut_masks, head_cut
from retention.rules.rule import PriorRemovals, RowRule, Rule, SubjectFacts
from retention.rules.setting import Setting


@dataclass(frozen=True)
class MaxMsgs(Rule):
    """At most `limit` messages are kept (NATS STREAM.UPDATE order, step 2)."""

    name: ClassVar[str] = MAX_MSGS
    setting: ClassVar[Setting] = Setting("max_msgs", "max_msgs", "messages", refuses=True)
    narrow: ClassVar[bool] = True
    trims: ClassVar[bool] = True
    limit: int

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule of the policy's limit; None also if `discard: new` refuses new messages instead."""
        del as_of_ns, subjects
        return cls(policy.max_msgs) if policy.max_msgs is not None and policy.trims_head else None

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether at least `limit` messages are newer."""
        limit = policy.max_msgs
        return limit is not None and policy.trims_head and facts.newer >= limit

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The number of newer messages."""
        if policy.max_msgs is None:
            return None
        if not policy.trims_head:
            return f"{cls.name}{REFUSES}"
        return f"{cls.name} {policy.max_msgs:,}: {messages_are(facts.newer)} newer than it"

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The number of newer messages at which the limit removes a message."""
        del as_of_ns
        return f" {policy.max_msgs:,}, {policy.max_msgs:,} or more are newer"

    @classmethod
    def ahead_of(cls, policy: Policy, messages: int, total_bytes: int) -> Policy | None:
        """The policy, with the limit reduced by the messages after the prefix."""
        del total_bytes
        if policy.max_msgs is None:
            return policy
        rest = policy.max_msgs - messages
        return None if rest < 0 and policy.trims_head else replace(policy, max_msgs=rest)

    def decide(self, spans: Spans, before: PriorRemovals) -> MaxMsgsDecision:
        """Cut by the messages of each span, from statistics."""
        del before
        cut = head_cut(self.limit, spans.messages)
        whole, ends = cut_masks(cut, spans)
        counted = np.zeros_like(spans.messages)
        counted[ends] = cut.rest
        return MaxMsgsDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole,
            rows=np.zeros_like(whole),
            counted=counted,
            unclear=ends,
            cut=cut,
        )


@dataclass(frozen=True, kw_only=True)
class MaxMsgsDecision(HeadTrim):
    """The extent of the trim, in messages."""

    def question(self, span: int) -> RowRule | None:
        """The question for the lowest messages, by the number to remove."""
        lose = self.share(span, self.spans.messages)
        return Lowest(lose) if lose else None

    def bounds(self) -> tuple[Array, Array]:
        """Exactly the counted messages of the span in which the trim ends."""
        return self.counted, self.counted


@dataclass(frozen=True)
class Lowest(RowRule):
    """A number of lowest messages of a span."""

    messages: int
    rule = MAX_MSGS

    def takes(self, rows: pa.Table) -> Array:
        """The lowest rows."""
        return np.arange(rows.num_rows) < self.messages
