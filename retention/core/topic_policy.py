"""What the rules see of a topic's configuration: Iggy's limits, in microseconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Profile = Literal["modern", "v8"]
"""Which server's rules: those of 0.9, or those of 0.8."""


@dataclass(frozen=True)
class TopicPolicy:
    """A topic's retention rules; None means never, or unlimited."""

    partitions: int
    segment_size: int
    max_message_size: int
    """The largest request that the server's bus takes, and with it the largest batch."""
    profile: Profile = "modern"
    message_expiry_us: int | None = None
    max_topic_size: int | None = None
    respect_consumer_offsets: bool = True
    roll_after_us: int | None = None
    """An active segment is sealed when its first message is that old."""
