"""Partitions of a topic with timestamps ahead of the clock: age removes none of their messages until then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from retention.core.json_object import JsonObject
from retention.core.topic_policy import CLOCKS_APART_US, TopicPolicy
from retention.core.units import MICROSECOND
from retention.rules.iggy.segments import TopicSegments


@dataclass(frozen=True)
class AheadOfClock:
    """A partition with segments ahead of the clock."""

    partition: int
    first_seq: int
    last_seq: int
    """The first and the last offset of these segments are `first_seq` and `last_seq`."""
    latest_ns: int
    """The latest timestamp, nanoseconds since the epoch."""
    oldest_segments: int
    """The number of segments of the partition up to the last of these, the count to pass to `delete-segments`."""
    is_open: bool
    """Whether the last of them is the active segment; appended messages then get even later timestamps."""

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return asdict(self)


def ahead_of_clock(
    segments: TopicSegments, policy: TopicPolicy, now_ns: int
) -> tuple[AheadOfClock, ...]:
    """Find the partitions stamped by a clock that was ahead.

    Args:
        segments: the current segments of the topic.
        policy: the topic's rules; servers of 0.8 compare the timestamp of the last message.
        now_ns: the clock, or the instant of a pass, nanoseconds since the epoch.
    """
    return tuple(_ahead(segments, policy, now_ns // MICROSECOND + CLOCKS_APART_US))


def _ahead(segments: TopicSegments, policy: TopicPolicy, until_us: int) -> Iterator[AheadOfClock]:
    compared = segments.max_us if policy.profile == "modern" else segments.last_us
    is_ahead = (segments.end >= segments.start) & (compared > until_us)
    for partition, part in segments.parts():
        at = np.flatnonzero(is_ahead[part])
        if len(at):
            yield AheadOfClock(
                partition,
                int(segments.start[part][at[0]]),
                int(segments.end[part][at[-1]]),
                int(compared[part][at].max()) * MICROSECOND,
                int(at[-1]) + 1,
                not segments.sealed[part][at[-1]],
            )
