"""Rules of `max_age`: their common part, and `MaxAge`, which scans from the lowest sequence up to a young message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Expiry, Policy
from retention.core.spans import Array, Spans
from retention.core.units import SECOND, format_duration, format_instant
from retention.rules import MAX_AGE
from retention.rules.facts import Facts, spell_age
from retention.rules.rule import (
    Decision,
    ExpiryRule,
    PriorRemovals,
    RowRule,
    Scan,
    SubjectFacts,
    delayed,
)
from retention.rules.setting import Setting
from retention.schemas.deadlines import NEVER

_BEFORE_ALL = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class AgeRule(ExpiryRule):
    """A message may be removed if `ts_ns <= cutoff_ns` and its deadline is not `NEVER` (ADR-43)."""

    name: ClassVar[str] = MAX_AGE
    setting: ClassVar[Setting] = Setting("max_age", "max_age_ns", "ns")
    expiry: ClassVar[Expiry]
    """The policy's `expiry` under which the rule applies."""
    max_age_ns: int
    cutoff_ns: int
    """`as_of - max_age`: the youngest instant that expires, nanoseconds since the epoch."""

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule at the instant; None if age is unlimited, or the policy has the other rule."""
        del subjects
        age = policy.max_age_ns
        return None if age is None or policy.expiry != cls.expiry else cls(age, as_of_ns - age)

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the message is old enough and not `never`, and a scan did not end before it."""
        age = policy.max_age_ns
        if age is None or policy.expiry != cls.expiry or facts.deadline_ns == NEVER:
            return False
        return facts.as_of_ns - facts.ts_ns >= age and facts.scan_end is None

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The age of the message, and the reason to keep it."""
        age = policy.max_age_ns
        return None if age is None or policy.expiry != cls.expiry else _age_line(age, facts)

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The age, and the latest instant that has reached it."""
        age = policy.max_age_ns or 0
        stored_by = format_instant((as_of_ns - age) // SECOND * SECOND)
        return f" {format_duration(age)}, stored by {stored_by}"

    def most(self, spans: Spans) -> Array:
        """The messages that are not `never`, less one if one is young."""
        stay = np.maximum(spans.never, spans.max_ts_ns > self.cutoff_ns)
        return np.where(spans.min_ts_ns <= self.cutoff_ns, spans.messages - stay, 0)


@dataclass(frozen=True)
class MaxAge(AgeRule):
    """A scan that ends at the first message with `ts_ns > cutoff_ns` left by the rules before it.

    NATS STREAM.UPDATE order, step 5a.
    """

    expiry: ClassVar[Expiry] = "head"

    def decide(self, spans: Spans, before: PriorRemovals) -> MaxAgeDecision:
        """Walk the spans: those without a young message are removed, up to the first certainly kept young message.

        A span with young and old messages needs its rows. So does a span that loses some messages
        to other rules: if it loses all its young messages, it does not end the scan.
        """
        young, old = spans.max_ts_ns > self.cutoff_ns, spans.min_ts_ns <= self.cutoff_ns
        has_young, has_old = young & ~before.gone, old & ~before.gone
        numbers = np.arange(len(spans))
        reach = min(_first(has_young & ~before.some) + 1, len(spans))
        reached = (numbers < reach) & ~before.gone
        whole = reached & ~has_young & (spans.never == 0)
        stepped_over = ~has_young & (spans.never == spans.messages)
        doubtful = before.some & ~whole & young
        surely_reached = numbers < _first(doubtful)
        return MaxAgeDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole & ~before.unclear & surely_reached,
            rows=reached & ~whole & ((has_old & ~stepped_over) | before.some),
            counted=np.zeros_like(spans.messages),
            unclear=np.zeros_like(whole),
            scan=Scan(reach, young, ~old),
        )

    def everywhere(self) -> RowRule:
        """Ages, row by row."""
        return Old(self.cutoff_ns)

    def first_due(self, spans: Spans) -> Array:
        """The instant at which the scan has passed the youngest messages of all earlier spans, and finds an old one.

        Three spans, and instants to which the age is added:

            oldest message      5    20    15
            youngest message   10    40    30
            due                 5    20    40   (the scan must pass the second span)
        """
        passed = np.maximum.accumulate(np.append(_BEFORE_ALL, spans.max_ts_ns))[:-1]
        due = delayed(np.maximum(passed, spans.min_ts_ns), self.max_age_ns)
        return np.where(spans.never < spans.messages, due, NEVER)

    def segment_due(self, segments: Spans, *, alone: bool) -> Array:
        """The scan must pass the earlier segments; other rules may remove all of one except one message."""
        times = segments.max_ts_ns if alone else segments.min_ts_ns
        return delayed(np.maximum.accumulate(times), self.max_age_ns)

    def tail_due(self, spans: Spans) -> int:
        """The scan passes all spans before it reaches the rest."""
        return int(spans.max_ts_ns.max(initial=_BEFORE_ALL)) + self.max_age_ns


def _first(mask: Array) -> int:
    """The index of the first true entry; the number of entries if none is."""
    return int(mask.argmax()) if mask.any() else len(mask)


@dataclass(frozen=True, kw_only=True)
class MaxAgeDecision(Decision):
    """The decision of statistics about the scan."""

    rule: MaxAge
    scan: Scan

    def question(self, span: int) -> RowRule | None:
        """The question for old rows, if the scan may reach the span."""
        return self.rule.everywhere() if span < self.scan.reach else None

    def bounds(self) -> tuple[Array, Array]:
        """Zero for a span after the end of the scan; elsewhere at least zero, at most `MaxAge.most`."""
        most = self.rule.most(self.spans)
        reached = np.arange(len(self.spans)) < self.scan.reach
        return np.zeros_like(most), np.where(reached, most, 0)

    def ordered(self) -> Array:
        """A mask of spans in which the scan may remove some messages and end at others."""
        young, all_young = self.scan.may_stop, self.scan.stops
        return young & ~all_young & (np.arange(len(self.spans)) < self.scan.reach)

    def ends_within(self) -> bool:
        """Whether statistics end the scan within the spans."""
        return self.scan.reach < len(self.spans)


@dataclass(frozen=True)
class EachOld(RowRule):
    """The old rows."""

    cutoff_ns: int
    """The youngest instant that expires."""
    rule = MAX_AGE
    expires = True
    columns = ("ts_ns", "deadline_ns")

    def takes(self, rows: pa.Table) -> Array:
        """Old rows that are not `never`."""
        lasting = pc.fill_null(rows["deadline_ns"], 0).to_numpy() == NEVER
        return (rows["ts_ns"].to_numpy() <= self.cutoff_ns) & ~lasting


@dataclass(frozen=True)
class Old(EachOld):
    """The old rows up to the first young one."""

    def stops(self, rows: pa.Table) -> Array:
        """Young rows."""
        return rows["ts_ns"].to_numpy() > self.cutoff_ns


def _age_line(max_age_ns: int, facts: Facts) -> str:
    """The line of an explanation about the age of one message.

    Args:
        max_age_ns: the age of removal.
        facts: the message.
    """
    age_ns = facts.as_of_ns - facts.ts_ns
    line = (
        f"{MAX_AGE} {format_duration(max_age_ns)}: it is {spell_age(age_ns)} old,"
        f" stored {format_instant(facts.ts_ns)}"
    )
    if age_ns < max_age_ns:
        return f"{line}, and is removed at {format_instant(facts.ts_ns + max_age_ns)}"
    if facts.deadline_ns == NEVER:
        return f"{line}, but its Nats-TTL is never, so age does not remove it"
    if facts.scan_end is not None:
        return (
            f"{line}, but the scan from the oldest sequence ended before it, at message {facts.scan_end:,}, which is "
            "young enough to be kept"
        )
    return line
