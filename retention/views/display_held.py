"""What people read about what consumers hold back from limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.units import format_size
from retention.views.words import brief_instant, count


def held_text(held: Mapping[str, Any] | None) -> list[str]:
    """What is held back, for whom, and since when, a line for each consumer and rule.

    Args:
        held: as `Held.as_json` has it; None: nothing is ever held.
    """
    if held is None:
        return []
    missing = [
        f"{name} is not there, so that it counts as needing everything" for name in held["missing"]
    ]
    if not held["messages"]:
        return missing
    verb = (
        "held back"
        if held["action"] == "hold"
        else "needed still, and not held back (action: warn)"
    )
    size = format_size(held["bytes"])
    total = f"{count(held['messages'], 'message')} ({size}) {verb}:"
    return [*missing, total, *(f"  {_line(one)}" for one in held["by_consumer"])]


def _line(one: Mapping[str, Any]) -> str:
    return (
        f"{one['consumer']} needs {one['messages']:,} that {one['rule']} would take, the oldest stored"
        f" {brief_instant(one['oldest_ts_ns'])}"
    )
