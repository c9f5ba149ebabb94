"""MaxAge with `expiry: each`: remove every old message, anywhere; no server has this rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.rules import MAX_AGE
from retention.rules.facts import Facts
from retention.rules.jetstream.max_age import MaxAge, age_line, has_expired, is_old, most_expired
from retention.rules.rule import (
    Decision,
    ExpiryRule,
    PriorRemovals,
    RowRule,
    SubjectFacts,
    delayed,
)
from retention.rules.setting import Setting
from retention.schemas.messages import NEVER


@dataclass(frozen=True)
class MaxAgeEach(ExpiryRule):
    """A message is removed if `ts_ns <= cutoff_ns` and its deadline is not `NEVER`."""

    name: ClassVar[str] = MAX_AGE
    setting: ClassVar[Setting] = MaxAge.setting
    max_age_ns: int
    cutoff_ns: int
    """`as_of - max_age`: the youngest instant that expires, nanoseconds since the epoch."""

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule at the instant; None if age is unlimited, or is a scan."""
        del subjects
        age = policy.max_age_ns
        return None if age is None or policy.expiry != "each" else cls(age, as_of_ns - age)

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule is on, because old messages may be anywhere."""
        return policy.max_age_ns is not None and policy.expiry == "each"

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the message is old enough."""
        if policy.max_age_ns is None or policy.expiry != "each":
            return False
        return is_old(policy.max_age_ns, facts)

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The age of the message."""
        age = policy.max_age_ns
        return None if age is None or policy.expiry != "each" else age_line(age, facts)

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The reason of the scan, `MaxAge.reason`."""
        return MaxAge.reason(policy, as_of_ns)

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
            age=self,
        )

    def everywhere(self) -> RowRule:
        """Ages, row by row."""
        return EachOld(self.cutoff_ns)

    def most(self, spans: Spans) -> Array:
        """The messages that are not `never`, less one if one is young."""
        return most_expired(spans, self.cutoff_ns)

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

    age: MaxAgeEach

    def question(self, span: int) -> RowRule:
        """The question for old rows."""
        del span
        return self.age.everywhere()

    def bounds(self) -> tuple[Array, Array]:
        """Exactly those not `never` if none is young; otherwise at least the oldest, unless it may be `never`."""
        most = self.age.most(self.spans)
        oldest = np.minimum(most, self.spans.never == 0)
        return np.where(self.spans.max_ts_ns > self.age.cutoff_ns, oldest, most), most


@dataclass(frozen=True)
class EachOld:
    """The old rows."""

    cutoff_ns: int
    rule: ClassVar[str] = MAX_AGE
    expires: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("ts_ns", "deadline_ns")

    def takes(self, rows: pa.Table) -> Array:
        """Old rows that are not `never`."""
        return has_expired(rows, self.cutoff_ns)

    def stops(self, rows: pa.Table) -> None:
        """None: the rule does not scan."""
