"""Text about partitions of a topic with times ahead of the clock, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retention.core.spoken_commands import command
from retention.views.wording import brief_instant

if TYPE_CHECKING:
    from retention.plan.ahead_of_clock import AheadOfClock

MOST_PARTITIONS = 12
"""The maximum number of lines about partitions before the rest is counted."""


def ahead_text(topic: str, ahead: Sequence[AheadOfClock]) -> list[str]:
    """A line for each partition with times ahead of the clock; none if there are none."""
    remedy = command("repair clock", topic)
    lines = [
        f"{stamped_text(stamped)}; until then age removes nothing from the partition; {remedy} shows the remedy"
        for stamped in ahead[:MOST_PARTITIONS]
    ]
    rest = len(ahead) - MOST_PARTITIONS
    return [*lines, f"and {rest:,} more partitions"] if rest > 0 else lines


def stamped_text(stamped: AheadOfClock) -> str:
    """The clause for a partition, its offsets with times ahead of the clock, and the latest of these times."""
    offsets = f"offsets {stamped.first_seq:,} to {stamped.last_seq:,}"
    until = brief_instant(stamped.latest_ns)
    return (
        f"partition {stamped.partition}: {offsets} have later times than the clock, up to {until}"
    )


def remedy_text(topic: str, stamped: AheadOfClock) -> str:
    """The command that removes the segments of a partition with times ahead of the clock, and all before them."""
    number = (
        "the oldest segment"
        if stamped.oldest_segments == 1
        else f"the {stamped.oldest_segments:,} oldest segments"
    )
    remove = command(
        "delete-segments",
        topic,
        str(stamped.partition),
        str(stamped.oldest_segments),
        options="--yes",
    )
    return (
        f"{remove} removes {number}, once its messages are no longer needed; until then age removes nothing from the "
        "partition"
    )
