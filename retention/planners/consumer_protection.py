"""Protection of messages that consumers still need from a pass: from metadata if possible, otherwise from rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from retention.core.policy import ConsumerProtection
from retention.core.read_count import ReadCount
from retention.plan.consumer_snapshot import ConsumerSnapshot
from retention.plan.protected import ProtectedMessages, sum_protected
from retention.planners.rows import SpanRowsReader
from retention.planners.veto import veto
from retention.rules.fold import Evaluation, Vetoed
from retention.rules.jetstream.consumer_protection import (
    ProtectionBudget,
    Sizes,
    budget_of,
    first_protected,
    protected_sizes,
    protected_whole,
    settled,
)
from retention.rules.jetstream.interest import Interest
from retention.rules.jetstream.protection import AT_ANY_AGE, Protection
from retention.rules.row_verdicts import stop_of


@dataclass(frozen=True)
class ProtectionOutcome:
    """A pass, and the messages held from it by consumer protection."""

    vetoed: Vetoed
    hold: Protection
    """The protection in effect, with the first sequence that fits its room."""
    ranges: pa.Table
    """Ranges of held messages that rules would remove; shape `HELD_RANGES`."""
    read: ReadCount = field(default_factory=ReadCount)
    """The reads to find the room for held messages."""

    def as_messages(self, rule: ConsumerProtection, missing: tuple[str, ...]) -> ProtectedMessages:
        """The held messages, in numbers."""
        names = tuple(interest.consumer for interest in self.hold.interests)
        return sum_protected(self.ranges, names, rule.action, missing)


def missing_consumers(rule: ConsumerProtection, audience: ConsumerSnapshot) -> tuple[str, ...]:
    """The consumers that a rule names but that do not exist."""
    there = {interest.consumer for interest in audience.interests}
    return tuple(name for name in rule.consumers or () if name not in there)


def protection_of(
    rule: ConsumerProtection, audience: ConsumerSnapshot, as_of_ns: int
) -> Protection:
    """The protection at an instant, before its room is known.

    The needs of a named but missing consumer are unknown, so everything is held for it.
    """
    named = rule.consumers
    there = [
        interest for interest in audience.interests if named is None or interest.consumer in named
    ]
    absent = [Interest(name, -1, -1, explicit=False) for name in missing_consumers(rule, audience)]
    after_ns = AT_ANY_AGE if rule.max_age_ns is None else as_of_ns - rule.max_age_ns
    return Protection((*there, *absent), max(after_ns, AT_ANY_AGE))


def protect(
    asks: SpanRowsReader, decided: Evaluation, hold: Protection, max_bytes: int | None
) -> ProtectionOutcome:
    """Hold the messages protected by consumers from a pass.

    Args:
        asks: the reader of rows.
        decided: the pass without a hold.
        hold: the protection.
        max_bytes: the bytes of newest messages to hold; older messages are removed. None: all are held.

    Raises:
        DamagedError: a file cannot be read.
    """
    outcome = _held_back(asks, decided, hold)
    if max_bytes is None:
        return outcome
    budget = budget_of(decided.spans, outcome.ranges, max_bytes)
    if budget is None:
        return outcome
    sizes = _sizes(asks, outcome, budget)
    first = first_protected(budget, [size.held for size in sizes])
    again = _held_back(asks, decided, replace(hold, from_seq=first))
    reads = [answer.read for answer in outcome.vetoed.answers] + [size.read for size in sizes]
    return replace(again, read=sum(reads, ReadCount()))


def _held_back(asks: SpanRowsReader, decided: Evaluation, hold: Protection) -> ProtectionOutcome:
    vetoed = veto(decided, (hold,), asks)
    spans, stopped_at = decided.spans, stop_of(vetoed.answers)
    whole = decided.whole(stopped_at) & vetoed.decided.held
    ranges = [
        protected_whole(spans, decided.by_rule(stopped_at), hold, whole),
        *(
            settled(answer.held, reached=_reached(answer.span, stopped_at))
            for answer in vetoed.answers
        ),
    ]
    return ProtectionOutcome(vetoed, hold, pa.concat_tables(ranges))


def _sizes(
    asks: SpanRowsReader, outcome: ProtectionOutcome, budget: ProtectionBudget
) -> list[Sizes]:
    """Sizes of the held messages in the spans in which the room ends."""
    decided, stopped_at = outcome.vetoed.decided, stop_of(outcome.vetoed.answers)
    sizes: list[Sizes] = []
    for reached in (True, False):
        numbers = [int(span) for span in budget.spans if _reached(int(span), stopped_at) == reached]
        questions = [decided.question(span) for span in numbers]
        sizes += asks(partial(protected_sizes, reached=reached), decided.spans, questions)
    return sizes


def _reached(span: int, stopped_at: int | None) -> bool:
    """Whether the age scan reaches a span."""
    return stopped_at is None or span <= stopped_at
