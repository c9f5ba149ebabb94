"""The next due instant of a topic: until then, a pass over the same segments removes, seals and holds nothing."""

from __future__ import annotations

from collections.abc import Iterator

from retention.core.topic_policy import TopicPolicy
from retention.rules.iggy.segments import TopicSegments


def next_due(segments: TopicSegments, policy: TopicPolicy) -> int | None:
    """The earliest instant at which a pass may have an effect, given that it has none now.

    Time only expires segments and seals them by `roll_after`. Removals by size or by request change
    only with a commit or a stored offset. The instant is a lower bound.

    Args:
        segments: the stored segments of all partitions; no offset holds a segment that a pass would remove.
        policy: the limits and `roll_after`, and the profile that interprets them.

    Returns:
        Microseconds since the epoch; None: time alone changes nothing.
    """
    return min((*_expiries(segments, policy), *_rolls(segments, policy)), default=None)


def _expiries(segments: TopicSegments, policy: TopicPolicy) -> Iterator[int]:
    if policy.message_expiry_us is None:
        return
    for _, part in segments.parts():
        able = segments.may_go(part)
        # Under `modern` the first segment of a partition is removed before any other.
        times = segments.max_us[part][:1] if policy.profile == "modern" else segments.last_us[part]
        newest = times[able[: len(times)] & (times != 0)]
        if len(newest):
            yield int(newest.min()) + policy.message_expiry_us


def _rolls(segments: TopicSegments, policy: TopicPolicy) -> Iterator[int]:
    first_us = segments.first_us[~segments.sealed & (segments.first_us != 0)]
    if policy.roll_after_us is not None and len(first_us):
        yield int(first_us.min()) + policy.roll_after_us
