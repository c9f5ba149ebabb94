"""The policy of a topic: Iggy's limits, in microseconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Profile = Literal["modern", "v8"]
"""The server version that sets the rules: `modern` is 0.9, `v8` is 0.8."""


CLOCKS_APART_US = 60_000_000
"""The tolerated difference between the clocks of cooperating machines, microseconds."""


@dataclass(frozen=True)
class TopicPolicy:
    """A topic's retention rules; None means never, or unlimited."""

    partitions: int
    segment_size: int
    max_message_size: int
    """The largest request that the server's bus accepts, and so the largest batch."""
    profile: Profile = "modern"
    message_expiry_us: int | None = None
    max_topic_size: int | None = None
    respect_consumer_offsets: bool = True
    roll_after_us: int | None = None
    """The age of the first message at which an active segment is sealed, microseconds."""
