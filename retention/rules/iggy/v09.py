"""Which segments of a topic a server of version 0.9 drops: of each partition the oldest, by age and by size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.core.units import INT64_MAX
from retention.rules.iggy.segments import (
    BY_AGE,
    BY_SIZE,
    TopicSegments,
    expired,
    is_free,
    leading,
)


def fates_modern(
    segments: TopicSegments, policy: TopicPolicy, now_us: int, barriers: Mapping[int, int]
) -> Array:
    """What becomes of each segment; a segment that stays ends what goes of its partition.

    Args:
        segments: those of all partitions.
        policy: what lets segments go.
        now_us: the pass's one instant, microseconds since the epoch.
        barriers: partition → the lowest offset that a consumer or a group has stored.
    """
    fates = np.zeros(len(segments), dtype=np.int8)
    budget = budget_of(policy)
    for partition, part in segments.parts():
        able = segments.may_go(part)
        aged = leading(able & expired(segments.max_us[part], policy, now_us))
        oversized = min(_beyond(budget, segments.bytes[part] * able), leading(able))
        free = leading(is_free(segments.end[part], barriers.get(partition)))
        fates[part][: min(oversized, free)] = BY_SIZE
        fates[part][: min(aged, free)] = BY_AGE
    return fates


def budget_of(policy: TopicPolicy) -> int | None:
    """How many bytes of sealed segments each partition may keep; None: any.

    It is the partition's share of `max_topic_size`, but never less than a full segment and the largest message.
    """
    if policy.max_topic_size is None:
        return None
    share = policy.max_topic_size // max(policy.partitions, 1)
    return max(share, policy.segment_size + policy.max_message_size)


def _beyond(budget: int | None, sealed_bytes: Array) -> int:
    """How many of the oldest segments go until the sealed ones that are left are within the budget."""
    if budget is None or budget > INT64_MAX:
        return 0
    left = sealed_bytes[::-1].cumsum()[::-1]
    return leading(left > budget)
