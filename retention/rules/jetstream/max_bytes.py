"""MaxBytes: remove the lowest sequences while the stream has more bytes than its limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.core.units import format_size
from retention.core.wording import counted
from retention.rules import MAX_BYTES
from retention.rules.facts import REFUSES, Facts
from retention.rules.jetstream.head_trim import HeadTrim, cut_masks, head_cut, lowest_until
from retention.rules.rule import PriorRemovals, RowRule, Rule, SubjectFacts
from retention.rules.setting import Setting


@dataclass(frozen=True)
class MaxBytes(Rule):
    """At most `limit` bytes are kept, by the broker's accounting (NATS STREAM.UPDATE order, step 3).

    MaxMsgs removes the lowest sequences, too, so together they end where the further one ends. So
    MaxBytes can count the bytes of the whole stream.
    """

    name: ClassVar[str] = MAX_BYTES
    setting: ClassVar[Setting] = Setting("max_bytes", "max_bytes", "bytes", refuses=True)
    narrow: ClassVar[bool] = True
    trims: ClassVar[bool] = True
    limit: int

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule of the policy's limit; None also if `discard: new` refuses new messages instead."""
        del as_of_ns, subjects
        return cls(policy.max_bytes) if policy.max_bytes is not None and policy.trims_head else None

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the message and everything newer exceed the limit."""
        limit = policy.max_bytes
        return limit is not None and policy.trims_head and facts.bytes_with_newer > limit

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The bytes of the message and everything newer."""
        limit = policy.max_bytes
        if limit is None:
            return None
        if not policy.trims_head:
            return f"{cls.name}{REFUSES}"
        taken = f"it and everything newer have {counted(facts.bytes_with_newer, 'byte')}"
        return f"{cls.name} {format_size(limit)} ({limit:,} bytes): {taken}"

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The exceeded limit."""
        del as_of_ns
        return f" {format_size(policy.max_bytes or 0)}, exceeded together with everything newer"

    @classmethod
    def ahead_of(cls, policy: Policy, messages: int, total_bytes: int) -> Policy | None:
        """The policy, with the limit reduced by the bytes after the prefix."""
        del messages
        if policy.max_bytes is None:
            return policy
        rest = policy.max_bytes - total_bytes
        return None if rest < 0 and policy.trims_head else replace(policy, max_bytes=rest)

    def decide(self, spans: Spans, before: PriorRemovals) -> MaxBytesDecision:
        """Cut by the bytes of each span; rows give the number of messages in the last one."""
        cut = head_cut(self.limit, spans.bytes)
        whole, ends = cut_masks(cut, spans)
        return MaxBytesDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole,
            rows=ends & ~before.gone,
            counted=np.zeros_like(spans.messages),
            unclear=ends,
            cut=cut,
        )


@dataclass(frozen=True, kw_only=True)
class MaxBytesDecision(HeadTrim):
    """The extent of the trim, in bytes."""

    def question(self, span: int) -> RowRule | None:
        """The question for the lowest messages, by the bytes to remove."""
        lose = self.share(span, self.spans.bytes)
        return LowestBytes(lose) if lose else None

    def bounds(self) -> tuple[Array, Array]:
        """At least one message of the span in which the trim ends."""
        return self.unclear.astype(np.int64), np.where(self.unclear, self.spans.messages, 0)


@dataclass(frozen=True)
class LowestBytes(RowRule):
    """The lowest messages of a span, up to a number of bytes."""

    bytes: int
    rule = MAX_BYTES

    def takes(self, rows: pa.Table) -> Array:
        """The lowest rows."""
        return np.arange(rows.num_rows) < lowest_until(self.bytes, rows["size"].to_numpy())
