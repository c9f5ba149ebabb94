"""Segments that a server of 0.8 drops: every expired one, then the oldest while the topic is too large."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.rules.iggy.segments import (
    BY_AGE,
    BY_SIZE,
    STAYS,
    TopicSegments,
    expired,
    is_free,
)


def fates_v8(
    segments: TopicSegments, policy: TopicPolicy, now_us: int, barriers: Mapping[int, int]
) -> Array:
    """The fate of each segment; an expired one is removed even if an older one is kept, which leaves a gap.

    The age of a segment is that of its last message; the size is that of the whole topic, including active segments.

    Args:
        segments: the segments of all partitions.
        policy: the limits.
        now_us: the pass's one instant, microseconds since the epoch.
        barriers: partition → the lowest offset stored by a consumer or a group.
    """
    able = np.zeros(len(segments), dtype=bool)
    for partition, part in segments.parts():
        free = is_free(segments.end[part], barriers.get(partition))
        able[part] = segments.may_go(part) & free
    aged = able & expired(segments.last_us, policy, now_us)
    fates = np.where(aged, BY_AGE, STAYS).astype(np.int8)
    fates[list(_oldest_while_large(segments, policy, able, ~aged))] = BY_SIZE
    return fates


def _oldest_while_large(
    segments: TopicSegments, policy: TopicPolicy, able: Array, there: Array
) -> Iterator[int]:
    """The segments to remove, oldest first, until the topic is below nine tenths of `max_topic_size`.

    Only the first remaining segment of each partition is a candidate; one that must be kept ends its partition.
    """
    if policy.max_topic_size is None:
        return
    threshold = policy.max_topic_size * 9 // 10
    size = int(segments.bytes[there].sum())
    queues = [_queue(segments, able, there, part) for _, part in segments.parts()]
    for _, _, at in heapq.merge(*queues):
        if size < threshold:
            return
        yield at
        size -= int(segments.bytes[at])


def _queue(
    segments: TopicSegments, able: Array, there: Array, part: slice
) -> Iterator[tuple[int, int, int]]:
    """Removable segments of a partition, in order, as (time of the first message, partition for ties, number)."""
    for at in np.flatnonzero(there[part]) + part.start:
        if not able[at]:
            return
        yield int(segments.first_us[at]), part.start, int(at)
