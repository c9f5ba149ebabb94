"""Where a topic's segments are sealed: as soon as one is large enough, by the profile's own measure of that."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from retention.rules.spans import Array
from retention.topic_policy import TopicPolicy


def sealed_after(held: int, sizes: Array, policy: TopicPolicy) -> Iterator[int]:
    """Behind how many of the new messages a segment is sealed, rising; the next message begins another one.

    Today's server seals when what is stored has reached `segment_size`; the one of 0.8 looks before it stores, so that
    one more message lands in the segment.

    Args:
        held: bytes that the active segment holds before.
        sizes: int64, bytes of each new message, above zero.
        policy: the topic's.
    """
    ends = np.cumsum(sizes)
    begin, goal = 0, policy.segment_size - held
    while True:
        reaching = int(np.searchsorted(ends, goal)) if goal > 0 else begin - 1
        after = reaching + (2 if policy.profile == "v8" else 1)
        after = max(after, begin + 1)
        if after > len(sizes):
            return
        yield after
        begin, goal = after, int(ends[after - 1]) + policy.segment_size
