"""What people read about forecasts: when something goes next, and how much by when."""

from __future__ import annotations

import itertools
from dataclasses import replace

from retention.core.units import format_size
from retention.plan.estimate_ranges import Bounds
from retention.plan.forecast import Due, Forecast
from retention.plan.plan import Plan
from retention.views.wording import between, brief_duration, brief_instant


def due_text(ahead: Forecast) -> str:
    """When something goes next, and how much by when; empty where no rule looks at time."""
    return ", ".join([_next_text(ahead), *_later(ahead)]) if ahead.due else ""


def plan_due_text(plan: Plan) -> str:
    """The same beside what goes at once, which counts in whatever goes later."""
    if plan.is_empty:
        return due_text(plan.forecast)
    later = _later(plan.forecast)
    return ", ".join(["counting these", *later]) if later else ""


def _next_text(ahead: Forecast) -> str:
    now = ahead.due[0]
    if ahead.next_due_ns is None:
        return "nothing falls due"
    if ahead.next_due_ns <= now.by_ns:
        return f"due now {_amount(now)}"
    return f"next due {brief_instant(ahead.next_due_ns)}"


def _later(ahead: Forecast) -> list[str]:
    """The horizons at which the numbers are others than before."""
    return [
        f"within {brief_duration(one.by_ns - ahead.due[0].by_ns)} {_amount(one)}"
        for before, one in itertools.pairwise(ahead.due)
        if replace(one, by_ns=before.by_ns) != before
    ]


def _amount(one: Due) -> str:
    messages = between(Bounds(one.messages_at_least, one.messages_at_most))
    noun = "message" if messages == "1" else "messages"
    sizes = dict.fromkeys(format_size(size) for size in (one.bytes_at_least, one.bytes_at_most))
    return f"{messages} {noun} ({' to '.join(sizes)})"
