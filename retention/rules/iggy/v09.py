"""Segments that a server of 0.9 drops: the oldest of each partition, by age and by size."""

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
    """The fate of each segment; a segment is kept if an older one of its partition is kept.

    Args:
        segments: the segments of all partitions.
        policy: the limits.
        now_us: the pass's one instant, microseconds since the epoch.
        barriers: partition → the lowest offset stored by a consumer or a group.
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
    """The bytes of sealed segments that each partition may keep; None: unlimited.

    The budget is the partition's share of `max_topic_size`, but at least a full segment plus the largest message.
    """
    if policy.max_topic_size is None:
        return None
    share = policy.max_topic_size // max(policy.partitions, 1)
    return max(share, policy.segment_size + policy.max_message_size)


def _beyond(budget: int | None, sealed_bytes: Array) -> int:
    """Count the oldest segments to remove until the remaining sealed ones are within the budget.

    For a budget of 50 and segments of 30, 40, 20 and 10 bytes, the suffix sums are 100, 70, 30 and 10: two are removed.
    """
    if budget is None or budget > INT64_MAX:
        return 0
    remaining = sealed_bytes[::-1].cumsum()[::-1]
    return leading(remaining > budget)
