"""MaxAge with `expiry: each`: remove every old message, anywhere; no server has this rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from retention.core.policy import Expiry, Policy
from retention.core.spans import Array, Spans
from retention.rules.jetstream.max_age import AgeRule, EachOld
from retention.rules.rule import Decision, PriorRemovals, RowRule, delayed
from retention.schemas.deadlines import NEVER


@dataclass(frozen=True)
class MaxAgeEach(AgeRule):
    """The removal of every old message."""

    expiry: ClassVar[Expiry] = "each"

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule is on, because old messages may be anywhere."""
        return policy.max_age_ns is not None and policy.expiry == "each"

    def decide(self, spans: Spans, before: PriorRemovals) -> MaxAgeEachDecision:
        """Spans without a young message and without `never` are removed; spans without an old message are kept."""
        old, young = spans.min_ts_ns <= self.cutoff_ns, spans.max_ts_ns > self.cutoff_ns
        whole = ~young & (spans.never == 0)
        lasting = spans.never == spans.messages
        return MaxAgeEachDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole & ~before.unclear,
            rows=old & ~whole & ~lasting & ~before.gone,
            counted=np.zeros_like(spans.messages),
            unclear=np.zeros_like(whole),
        )

    def everywhere(self) -> RowRule:
        """Ages, row by row."""
        return EachOld(self.cutoff_ns)

    def first_due(self, spans: Spans) -> Array:
        """The instant at which the oldest message is old enough."""
        due = delayed(spans.min_ts_ns, self.max_age_ns)
        return np.where(spans.never < spans.messages, due, NEVER)

    def segment_due(self, segments: Spans, *, alone: bool) -> Array:
        """The instant at which the youngest message is old enough; the oldest, if other rules take the rest."""
        return delayed(segments.max_ts_ns if alone else segments.min_ts_ns, self.max_age_ns)


@dataclass(frozen=True, kw_only=True)
class MaxAgeEachDecision(Decision):
    """The decision of statistics about ages."""

    rule: MaxAgeEach

    def question(self, span: int) -> RowRule:
        """The question for old rows."""
        del span
        return self.rule.everywhere()

    def bounds(self) -> tuple[Array, Array]:
        """Exactly those not `never` if none is young; otherwise at least the oldest, unless it may be `never`."""
        most = self.rule.most(self.spans)
        oldest = np.minimum(most, self.spans.never == 0)
        return np.where(self.spans.max_ts_ns > self.rule.cutoff_ns, oldest, most), most
