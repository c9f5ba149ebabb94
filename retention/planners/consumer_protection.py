"""Protection of messages that consumers still need from a pass: from metadata if possible, otherwise from rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from retention.core.inventory import ReadCount
from retention.core.policy import ConsumerProtection
from retention.plan.consumer_snapshot import ConsumerSnapshot
from retention.plan.protected import ProtectedMessages, sum_protected
from retention.planners.rows import SpanRowsReader
from retention.rules.fold import Evaluation
from retention.rules.jetstream.consumer_protection import (
    Budget,
    Sizes,
    answer_protected,
    budget_of,
    first_protected,
    protected_sizes,
    protected_whole,
    settled,
)
from retention.rules.jetstream.interest import Interest
from retention.rules.jetstream.protection import AT_ANY_AGE, Protection
from retention.rules.row_verdicts import Answer, Question, stop_of


@dataclass(frozen=True)
class ProtectionOutcome:
    """A pass, and the messages held from it by consumer protection."""

    decided: Evaluation
    answers: list[Answer]
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
    reads = [answer.read for answer in outcome.answers] + [size.read for size in sizes]
    return replace(again, read=sum(reads, ReadCount()))


def _held_back(asks: SpanRowsReader, decided: Evaluation, hold: Protection) -> ProtectionOutcome:
    spans = decided.spans
    by_rule = decided.by_rule(None)
    goes = by_rule.any(axis=1)
    whole = goes & hold.whole(spans) & (np.count_nonzero(by_rule, axis=1) == 1)
    doubtful = goes & hold.some(spans) & ~whole
    held = replace(decided, ask=decided.ask | doubtful, held=whole)
    numbers = np.flatnonzero(held.ask)
    answers = asks(answer_protected, spans, [_question(held, hold, int(span)) for span in numbers])
    stopped_at = stop_of(answers)
    unheld = replace(held, held=None)
    return ProtectionOutcome(
        decided=held,
        answers=answers,
        hold=hold,
        ranges=pa.concat_tables(
            [
                protected_whole(
                    spans, unheld.by_rule(stopped_at), hold, whole & unheld.whole(stopped_at)
                ),
                *(
                    settled(answer.held, reached=_reached(answer.span, stopped_at))
                    for answer in answers
                ),
            ]
        ),
    )


def _question(decided: Evaluation, hold: Protection, span: int) -> Question:
    spans = decided.spans
    hold_of_span = hold.within(int(spans.min_seq[span]), int(spans.max_seq[span]))
    return replace(decided.question(span), hold=hold_of_span)


def _sizes(asks: SpanRowsReader, outcome: ProtectionOutcome, budget: Budget) -> list[Sizes]:
    """Sizes of the held messages in the spans in which the room ends."""
    stopped_at, sizes = stop_of(outcome.answers), []
    for reached in (True, False):
        numbers = [int(span) for span in budget.spans if _reached(int(span), stopped_at) == reached]
        questions = [_question(outcome.decided, outcome.hold, span) for span in numbers]
        sizes += asks(partial(protected_sizes, reached=reached), outcome.decided.spans, questions)
    return sizes


def _reached(span: int, stopped_at: int | None) -> bool:
    """Whether the age scan reaches a span."""
    return stopped_at is None or span <= stopped_at
