"""The segments of a topic that a server of 0.8 drops: every expired one, then the oldest while the topic is large."""

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
    """The fate of each segment; an expired one goes though an older one stays, which leaves a hole.

    Age is that of a segment's last message, and size is that of the whole topic, with its active segments.

    Args:
        segments: those of all partitions.
        policy: what lets segments go.
        now_us: the pass's one instant, microseconds since the epoch.
        barriers: partition → the lowest offset that a consumer or a group has stored.
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
    """The segments that go, the oldest first, until the topic is below nine tenths of `max_topic_size`.

    Of each partition only the first segment that is there can be next; one that cannot go ends its partition.
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
    """Segments of a partition that can go, in order: time of the first message, for ties the partition, number."""
    for at in np.flatnonzero(there[part]) + part.start:
        if not able[at]:
            return
        yield int(segments.first_us[at]), part.start, int(at)
