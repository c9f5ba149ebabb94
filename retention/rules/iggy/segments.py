"""The segments of a topic for rules: their offsets, times and bytes, and whether they can be removed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy

STAYS, BY_AGE, BY_SIZE, BY_REQUEST = 0, 1, 2, 3
"""The fates of a segment."""


@dataclass(frozen=True)
class TopicSegments:
    """One entry per segment, by partition, then oldest first; int64, times in microseconds since the epoch."""

    partition: Array
    start: Array
    """Offset of its first message."""
    end: Array
    """Offset of its last message; below `start` in an empty active segment."""
    first_us: Array
    last_us: Array
    """The broker's timestamp of the message with the highest offset."""
    max_us: Array
    """The latest broker timestamp in it; 0 means none."""
    bytes: Array
    sealed: Array
    """A mask; the last segment of a partition is never removed, sealed or not."""

    def __len__(self) -> int:
        return len(self.start)

    def parts(self) -> Iterator[tuple[int, slice]]:
        """Each partition, with the slice of its segments."""
        if not len(self):
            return
        bounds = [0, *(np.flatnonzero(np.diff(self.partition)) + 1).tolist(), len(self)]
        for begin, end in itertools.pairwise(bounds):
            yield int(self.partition[begin]), slice(begin, end)

    def may_go(self, part: slice) -> Array:
        """A mask of the sealed segments of a partition, except its last one."""
        able = self.sealed[part].copy()
        able[-1:] = False
        return able


def with_sealed(segments: TopicSegments, chosen: Array) -> TopicSegments:
    """Seal the chosen active segments, and add an empty active segment after each of them.

    Args:
        segments: the segments of all partitions.
        chosen: a mask of segments to seal; only active segments with messages count.
    """
    chosen = chosen & ~segments.sealed & (segments.end >= segments.start)
    behind = segments.end[chosen] + 1
    nothing = np.zeros(len(behind), dtype=np.int64)
    added = {
        "partition": segments.partition[chosen],
        "start": behind,
        "end": behind - 1,
        "sealed": nothing.astype(bool),
    }
    sealed = replace(segments, sealed=segments.sealed | chosen)
    columns = {
        field.name: np.concatenate([getattr(sealed, field.name), added.get(field.name, nothing)])
        for field in fields(TopicSegments)
    }
    order = np.lexsort((columns["start"], columns["partition"]))
    return TopicSegments(**{name: column[order] for name, column in columns.items()})


def expired(time_us: Array, policy: TopicPolicy, now_us: int) -> Array:
    """A mask of the segments past their expiry, from the time of their newest message.

    A segment never expires if the sum of time and expiry overflows, or if the time is 0 (none).
    """
    if policy.message_expiry_us is None or policy.message_expiry_us > now_us:
        return np.zeros(len(time_us), dtype=bool)
    return (time_us != 0) & (time_us <= now_us - policy.message_expiry_us)


def is_free(end: Array, barrier: int | None) -> Array:
    """A mask of the segments that every consumer has read to their last message."""
    if barrier is None:
        return np.ones(len(end), dtype=bool)
    return end <= barrier


def leading(mask: Array) -> int:
    """Count the leading true entries."""
    return len(mask) if mask.all() else int(np.argmin(mask))
