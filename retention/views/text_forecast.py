"""Forecasts as text: the instant of the next removal, and its amounts by several horizons."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from retention.core.bounds import Bounds
from retention.core.units import format_size
from retention.views.wording import bounds_text, brief_duration, brief_instant

if TYPE_CHECKING:
    from retention.plan.forecast import Due, Forecast
    from retention.plan.plan import Plan


def due_lines(ahead: Forecast) -> list[str]:
    """The next removal and the amounts by each horizon, a line each; empty if no rule depends on time."""
    return [_next_text(ahead), *_later(ahead)] if ahead.due else []


def due_text(ahead: Forecast) -> str:
    """The next removal and the amounts by each horizon, in one line."""
    return ", ".join(due_lines(ahead))


def plan_due_text(plan: Plan) -> str:
    """The forecast beside a plan; the plan's removals count in the amounts of later horizons."""
    if plan.is_empty:
        return due_text(plan.forecast)
    return ", ".join(_later(plan.forecast, ", these included:"))


def _next_text(ahead: Forecast) -> str:
    now = ahead.due[0]
    if ahead.next_due_ns is None:
        return "nothing due"
    if ahead.next_due_ns <= now.by_ns:
        return f"due now: {_amount(now)}"
    return f"next due {brief_instant(ahead.next_due_ns)}"


def _later(ahead: Forecast, after: str = ":") -> list[str]:
    """The horizons at which the amounts differ from those of the previous one, each with its amount."""
    return [
        f"due within {brief_duration(due.by_ns - ahead.due[0].by_ns)}{after} {_amount(due)}"
        for before, due in itertools.pairwise(ahead.due)
        if replace(due, by_ns=before.by_ns) != before
    ]


def _amount(due: Due) -> str:
    messages = bounds_text(Bounds(due.messages_at_least, due.messages_at_most))
    noun = "message" if messages == "1" else "messages"
    sizes = dict.fromkeys(format_size(size) for size in (due.bytes_at_least, due.bytes_at_most))
    return f"{messages} {noun} ({' to '.join(sizes)})"
