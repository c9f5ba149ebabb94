"""Protected messages as text: kept despite limits because of consumers, in topics because of stored offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.core.units import format_size
from retention.core.wording import counted
from retention.views.wording import brief_instant

MOST_READERS = 12
"""The maximum number of lines about readers before the rest is counted."""


def protected_text(held: Mapping[str, Any] | None) -> list[str]:
    """Lines for protected messages, their readers, and since when: one per consumer and rule, or partition and reader.

    Args:
        held: the value of `Plan.held_as_json`; None: protection does not apply.
    """
    if held is None:
        return []
    if "partitions" in held:
        return _of_topic(held)
    missing = [
        f"{name} does not exist, so it counts as needing every message" for name in held["missing"]
    ]
    if not held["messages"]:
        return missing
    verb = (
        "held back"
        if held["action"] == "hold"
        else "still needed, but not held back (action: warn)"
    )
    size = format_size(held["bytes"])
    total = f"{counted(held['messages'], 'message')} ({size}) {verb}:"
    return [*missing, total, *(f"  {_line(entry)}" for entry in held["by_consumer"])]


def _line(entry: Mapping[str, Any]) -> str:
    return (
        f"{entry['consumer']} needs {entry['messages']:,} that {entry['rule']} would remove, the oldest stored"
        f" {brief_instant(entry['oldest_ts_ns'])}"
    )


def _of_topic(held: Mapping[str, Any]) -> list[str]:
    if not held["segments"]:
        return []
    lines = [
        f"  partition {partition['partition']}: {_amount(reader)} {'waits' if reader['segments'] == 1 else 'wait'} for"
        f" {reader['kind']} {reader['name']}, which has read up to {reader['offset']:,} since"
        f" {brief_instant(reader['stored_ns'])}"
        for partition in held["partitions"]
        for reader in partition["readers"]
    ]
    rest = len(lines) - MOST_READERS
    more = [f"  and {rest:,} more readers of partitions"] if rest > 0 else []
    return [f"{_amount(held)} held back by stored offsets:", *lines[:MOST_READERS], *more]


def _amount(held: Mapping[str, Any]) -> str:
    size = format_size(held["bytes"])
    return (
        f"{counted(held['segments'], 'segment')} ({counted(held['messages'], 'message')}, {size})"
    )
