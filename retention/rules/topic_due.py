"""When something of a topic is next due: until then, a pass over the same segments and offsets takes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from retention.rules.topic_segments import TopicSegments, is_free
from retention.topic_policy import TopicPolicy


def next_expiry(
    segments: TopicSegments, policy: TopicPolicy, barriers: Mapping[int, int]
) -> int | None:
    """The earliest instant at which a pass could let a segment go, given that one lets nothing go now.

    Time lets segments expire and does nothing else: what size takes, and what was asked for, only a commit or a stored
    offset changes. Never later than the truth; it may be earlier.

    Args:
        segments: those of all partitions.
        policy: what lets segments go, and whose rules.
        barriers: partition → what `barrier_of` says; a partition that is not in it is held by nobody.

    Returns:
        Microseconds since the epoch; None: time alone lets nothing go.
    """
    if policy.message_expiry_us is None:
        return None
    newest: list[int] = []
    for partition, part in segments.parts():
        held_by = barriers.get(partition) if policy.respect_consumer_offsets else None
        able = segments.may_go(part) & is_free(segments.end[part], held_by)
        # Under `modern` nothing of a partition goes before its first segment does.
        times = segments.max_us[part][:1] if policy.profile == "modern" else segments.last_us[part]
        newest += times[able[: len(times)] & (times != 0)].tolist()
    return min(newest) + policy.message_expiry_us if newest else None
