"""The next due instant of a topic: until then, a pass over the same segments takes, seals and holds nothing."""

from __future__ import annotations

from collections.abc import Iterator

from retention.core.topic_policy import TopicPolicy
from retention.rules.iggy.segments import TopicSegments


def next_due(segments: TopicSegments, policy: TopicPolicy) -> int | None:
    """The earliest instant at which a pass could find something to do, given that it finds nothing now.

    Time lets segments expire and `roll_after` seal them, and does nothing else: what size takes, and what was asked
    for, only a commit or a stored offset changes. Never later than the truth; it may be earlier.

    Args:
        segments: those of all partitions, as they are; nobody's offset holds one that a pass would take.
        policy: what seals them and lets them go, and whose rules.

    Returns:
        Microseconds since the epoch; None: time alone changes nothing.
    """
    return min((*_expiries(segments, policy), *_rolls(segments, policy)), default=None)


def _expiries(segments: TopicSegments, policy: TopicPolicy) -> Iterator[int]:
    if policy.message_expiry_us is None:
        return
    for _, part in segments.parts():
        able = segments.may_go(part)
        # Under `modern` nothing of a partition goes before its first segment does.
        times = segments.max_us[part][:1] if policy.profile == "modern" else segments.last_us[part]
        newest = times[able[: len(times)] & (times != 0)]
        if len(newest):
            yield int(newest.min()) + policy.message_expiry_us


def _rolls(segments: TopicSegments, policy: TopicPolicy) -> Iterator[int]:
    first_us = segments.first_us[~segments.sealed & (segments.first_us != 0)]
    if policy.roll_after_us is not None and len(first_us):
        yield int(first_us.min()) + policy.roll_after_us
