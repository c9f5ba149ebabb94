"""What people read about what is held back: from limits by consumers, of topics by stored offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.core.units import format_size
from retention.views.wording import brief_instant, count

MOST_READERS = 12
"""How many lines about readers are shown before the rest is counted."""


def held_text(held: Mapping[str, Any] | None) -> list[str]:
    """What is held back, for whom, and since when: a line for each consumer and rule, or partition and reader.

    Args:
        held: as `Plan.held_as_json` has it; None: nothing is ever held.
    """
    if held is None:
        return []
    if "partitions" in held:
        return _of_topic(held)
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


def _of_topic(held: Mapping[str, Any]) -> list[str]:
    if not held["segments"]:
        return []
    lines = [
        f"  partition {one['partition']}: {_amount(reader)} {'waits' if reader['segments'] == 1 else 'wait'} for"
        f" {reader['kind']} {reader['name']}, which has read up to {reader['offset']:,} since"
        f" {brief_instant(reader['stored_ns'])}"
        for one in held["partitions"]
        for reader in one["readers"]
    ]
    rest = len(lines) - MOST_READERS
    more = [f"  and {rest:,} more who read a partition"] if rest > 0 else []
    return [f"{_amount(held)} held back by stored offsets:", *lines[:MOST_READERS], *more]


def _amount(held: Mapping[str, Any]) -> str:
    size = format_size(held["bytes"])
    return f"{count(held['segments'], 'segment')} ({count(held['messages'], 'message')}, {size})"
