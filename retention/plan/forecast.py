"""Forecasts: the next due instant, and the amounts due by later instants if nothing is stored meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain

from retention.core.inventory import Inventory
from retention.core.json_object import JsonObject
from retention.core.policy import Policy
from retention.core.units import DAY, HOUR, WEEK
from retention.plan.estimate_bounds import removal_of
from retention.plan.estimate_ranges import losses
from retention.ports import TailTotals
from retention.rules.fold import Evaluation
from retention.rules.jetstream.evaluate import expires
from retention.rules.jetstream.next_due import next_due
from retention.rules.jetstream.prefix_scan import ends_in_prefix, prefix_policy
from retention.rules.jetstream.split_spans import decide_at
from retention.rules.rule import TimedRule
from retention.schemas.messages import NEVER

HORIZONS_NS = (HOUR, DAY, WEEK, 30 * DAY)
"""Horizons of forecasts, nanoseconds ahead."""
_NO_TAIL = TailTotals()


@dataclass(frozen=True)
class Due:
    """Bounds of the losses by one pass at `by_ns`, if nothing is stored and no other pass runs until then."""

    by_ns: int
    """Nanoseconds since the epoch."""
    messages_at_least: int
    messages_at_most: int
    bytes_at_least: int
    bytes_at_most: int


@dataclass(frozen=True)
class Forecast:
    """Losses of a stream due to time alone; empty if no rule of its policy depends on time."""

    next_due_ns: int | None = None
    """The instant before which no pass removes anything; None: no pass ever does, unless something is stored."""
    due: tuple[Due, ...] = ()
    """Passes at the instant of the forecast, and at `HORIZONS_NS` after it."""

    def as_json(self) -> JsonObject:
        """The forecast as JSON values, with the keys of `state` and `plan`."""
        return asdict(self) | {"due": [asdict(due) for due in self.due]}


NOTHING_FORETOLD = Forecast()
"""The forecast of a stream without rules that depend on time."""


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


def never_below(ahead: Forecast, policy: Policy, messages: int, size: int) -> Forecast:
    """Raise the lower bounds of a forecast to the certain removals of today and to those of earlier horizons.

    A message due at one instant is due at every later one. Only delete markers can change that:
    more of them evict other messages, or are refused. In a stream with delete markers, only the
    first amounts rise.

    Args:
        ahead: the forecast.
        policy: the stream's rules.
        messages: the messages certain to be removed at the instant of the forecast.
        size: their bytes.
    """
    due = list(ahead.due)
    rising = 1 if policy.subject_delete_marker_ttl_ns is not None else len(due)
    for number, entry in enumerate(due[:rising]):
        messages = max(messages, entry.messages_at_least)
        size = max(size, entry.bytes_at_least)
        due[number] = replace(entry, messages_at_least=messages, bytes_at_least=size)
    return replace(ahead, due=tuple(due))


def forecast_at(as_of_ns: int, next_due_ns: int, due: tuple[Mapping[str, int], ...]) -> Forecast:
    """The part of an earlier forecast that is still valid at a later instant, with nothing due before it."""
    ahead = [Due(**entry) for entry in due if entry["by_ns"] > as_of_ns]
    instant = None if next_due_ns == NEVER else next_due_ns
    return Forecast(instant, (Due(as_of_ns, 0, 0, 0, 0), *ahead)) if due else NOTHING_FORETOLD


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
