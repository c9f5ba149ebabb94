"""Holding back from a pass what consumers still need: from metadata where it tells, else from rows."""

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
from retention.rules.jetstream.evaluate import Evaluation
from retention.rules.jetstream.interest import Interest
from retention.rules.jetstream.protection import AT_ANY_AGE, Protection
from retention.rules.row_verdicts import Answer, Question, stop_of


@dataclass(frozen=True)
class ProtectionOutcome:
    """A pass with what is held back from it."""

    decided: Evaluation
    answers: list[Answer]
    hold: Protection
    """What was held, with the sequence from which on there was room for it."""
    ranges: pa.Table
    """What rules would have taken; shape `HELD_RANGES`."""
    read: ReadCount = field(default_factory=ReadCount)
    """What it cost to find out what there is room for."""

    def told(self, rule: ConsumerProtection, missing: tuple[str, ...]) -> ProtectedMessages:
        """The same in numbers."""
        names = tuple(one.consumer for one in self.hold.interests)
        return sum_protected(self.ranges, names, rule.action, missing)


def missing_consumers(rule: ConsumerProtection, audience: ConsumerSnapshot) -> tuple[str, ...]:
    """The consumers that a rule names and that are not there."""
    there = {one.consumer for one in audience.interests}
    return tuple(name for name in rule.consumers or () if name not in there)


def protection_of(
    rule: ConsumerProtection, audience: ConsumerSnapshot, as_of_ns: int
) -> Protection:
    """What is held at an instant, before it is known how much of it there is room for.

    A consumer that is named and not there cannot say what it needs, so that everything is held for it.
    """
    named = rule.consumers
    there = [one for one in audience.interests if named is None or one.consumer in named]
    absent = [Interest(name, -1, -1, explicit=False) for name in missing_consumers(rule, audience)]
    after_ns = AT_ANY_AGE if rule.max_age_ns is None else as_of_ns - rule.max_age_ns
    return Protection((*there, *absent), max(after_ns, AT_ANY_AGE))


def protect(
    asks: SpanRowsReader, decided: Evaluation, hold: Protection, max_bytes: int | None
) -> ProtectionOutcome:
    """Take from a pass what is held.

    Args:
        asks: where rows are read.
        decided: the pass without a hold.
        hold: what is held.
        max_bytes: the newest so many bytes of it; what lies below goes after all; None: all of it.

    Raises:
        DamagedError: a file cannot be read.
    """
    found = _held_back(asks, decided, hold)
    if max_bytes is None:
        return found
    budget = budget_of(decided.spans, found.ranges, max_bytes)
    if budget is None:
        return found
    sizes = _sizes(asks, found, budget)
    first = first_protected(budget, [one.held for one in sizes])
    again = _held_back(asks, decided, replace(hold, from_seq=first))
    reads = [one.read for one in found.answers] + [one.read for one in sizes]
    return replace(again, read=sum(reads, ReadCount()))


def _held_back(asks: SpanRowsReader, decided: Evaluation, hold: Protection) -> ProtectionOutcome:
    spans = decided.spans
    by_rule = decided.by_rule(None)
    goes = by_rule.any(axis=1)
    whole = goes & hold.whole(spans) & (np.count_nonzero(by_rule, axis=1) == 1)
    doubtful = goes & hold.some(spans) & ~whole
    held = replace(decided, ask=decided.ask | doubtful, held=whole)
    numbers = np.flatnonzero(held.ask)
    answers = asks(answer_protected, spans, [_question(held, hold, int(one)) for one in numbers])
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
                *(settled(one.held, reached=_reached(one.span, stopped_at)) for one in answers),
            ]
        ),
    )


def _question(decided: Evaluation, hold: Protection, span: int) -> Question:
    spans = decided.spans
    own = hold.within(int(spans.min_seq[span]), int(spans.max_seq[span]))
    return replace(decided.question(span), hold=own)


def _sizes(asks: SpanRowsReader, found: ProtectionOutcome, budget: Budget) -> list[Sizes]:
    """The sizes of what is held of the spans in which room ends."""
    stopped_at, told = stop_of(found.answers), []
    for reached in (True, False):
        mine = [int(one) for one in budget.spans if _reached(int(one), stopped_at) == reached]
        questions = [_question(found.decided, found.hold, one) for one in mine]
        told += asks(partial(protected_sizes, reached=reached), found.decided.spans, questions)
    return told


def _reached(span: int, stopped_at: int | None) -> bool:
    """Whether the age scan comes to a span."""
    return stopped_at is None or span <= stopped_at
