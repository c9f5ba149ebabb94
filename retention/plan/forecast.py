"""Forecasts: the next due instant, and the amounts due by later instants if nothing is stored meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from retention.core.json_object import JsonObject
from retention.core.policy import Policy
from retention.core.prefix import TailTotals
from retention.core.units import DAY, HOUR, WEEK
from retention.schemas.deadlines import NEVER

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
