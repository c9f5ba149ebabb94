"""Forecasts made from metadata: the bounds of what passes at later instants remove."""

from __future__ import annotations

from itertools import chain

from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.core.prefix import TailTotals
from retention.plan.estimate_bounds import removal_of
from retention.plan.estimate_ranges import losses
from retention.plan.forecast import HORIZONS_NS, NOTHING_FORETOLD, Due, Forecast
from retention.rules.fold import Evaluation
from retention.rules.jetstream.evaluate import expires
from retention.rules.jetstream.next_due import next_due
from retention.rules.jetstream.prefix_scan import ends_in_prefix, prefix_policy
from retention.rules.jetstream.split_spans import decide_at
from retention.rules.rule import TimedRule
from retention.schemas.deadlines import NEVER

_NO_TAIL = TailTotals()


def forecast(
    inventory: Inventory,
    policy: Policy,
    as_of_ns: int,
    decided: Evaluation,
    later: TailTotals = _NO_TAIL,
) -> Forecast:
    """Forecast the removals of passes at and after `as_of_ns`, from metadata alone.

    Args:
        inventory: the stream, or its oldest segments.
        policy: the stream's rules.
        as_of_ns: the instant of the forecast, nanoseconds since the epoch.
        decided: a pass over the inventory, at any instant.
        later: totals of the messages missing from the inventory.
    """
    if not expires(policy):
        return NOTHING_FORETOLD
    effective = prefix_policy(policy, later.messages, later.bytes) or policy

    latest = NEVER - 1
    instants = (as_of_ns, *(min(as_of_ns + ahead, latest) for ahead in HORIZONS_NS))
    passes = decide_at(decided, inventory.files, effective, instants)
    at_once = next(passes)
    due = tuple(
        _due(inventory, effective, instant, decided_then, later)
        for instant, decided_then in zip(instants, chain([at_once], passes), strict=True)
    )
    if due[0].messages_at_most:
        return Forecast(as_of_ns, due)
    return Forecast(_next(at_once, policy, as_of_ns, inventory, later), due)


def _due(
    inventory: Inventory, policy: Policy, instant: int, decided: Evaluation, later: TailTotals
) -> Due:
    removal = removal_of(inventory, policy, decided, losses(decided, policy))
    messages, size = (of_span.total() for of_span in removal)
    unseen = TailTotals() if ends_in_prefix(decided) else later
    return Due(
        by_ns=instant,
        messages_at_least=messages.lower,
        messages_at_most=messages.upper + unseen.messages,
        bytes_at_least=size.lower,
        bytes_at_most=size.upper + unseen.bytes,
    )


def _next(
    decided: Evaluation, policy: Policy, as_of_ns: int, inventory: Inventory, later: TailTotals
) -> int | None:
    """The next due instant after a pass that removes nothing."""
    instant = next_due(decided, policy, inventory.counters.open_base)
    if instant is None:
        return as_of_ns
    if instant == NEVER and later.segments:
        instant = min(
            decision.rule.tail_due(decided.spans)
            for decision in decided.decisions
            if isinstance(decision.rule, TimedRule)
        )
    return None if instant >= NEVER else max(instant, as_of_ns)
