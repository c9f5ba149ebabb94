"""The segments of a topic as rules see them: their offsets, times and bytes, and which of them may ever go."""

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
    """One entry a segment, by partition, then the oldest first; int64, times in microseconds since the epoch."""

    partition: Array
    start: Array
    """Offset of its first message."""
    end: Array
    """Offset of its last message; below `start` in an active segment that holds none."""
    first_us: Array
    last_us: Array
    """The broker's time of the message with the highest offset."""
    max_us: Array
    """The latest time of the broker in it; 0 is none."""
    bytes: Array
    sealed: Array
    """A mask; the last segment of a partition never goes, sealed or not."""

    def __len__(self) -> int:
        return len(self.start)

    def parts(self) -> Iterator[tuple[int, slice]]:
        """Each partition, and where its segments lie."""
        if not len(self):
            return
        bounds = [0, *(np.flatnonzero(np.diff(self.partition)) + 1).tolist(), len(self)]
        for begin, end in itertools.pairwise(bounds):
            yield int(self.partition[begin]), slice(begin, end)

    def may_go(self, part: slice) -> Array:
        """Segments of a partition that are sealed and not its last; a mask."""
        able = self.sealed[part].copy()
        able[-1:] = False
        return able


def with_sealed(segments: TopicSegments, chosen: Array) -> TopicSegments:
    """Seal the chosen active segments, and put an empty active one behind each of them.

    Args:
        segments: those of all partitions.
        chosen: the segments to seal; a mask, of which those that are active and hold messages count.
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
    """Segments that have been kept long enough, their newest message being of that time; a mask.

    A time and an expiry that together exceed every instant never expire, and 0 is no time.
    """
    if policy.message_expiry_us is None or policy.message_expiry_us > now_us:
        return np.zeros(len(time_us), dtype=bool)
    return (time_us != 0) & (time_us <= now_us - policy.message_expiry_us)


def is_free(end: Array, barrier: int | None) -> Array:
    """Segments that every consumer has read to their last message; a mask."""
    if barrier is None:
        return np.ones(len(end), dtype=bool)
    return end <= barrier


def leading(mask: Array) -> int:
    """Count the entries that are true before the first that is not."""
    return len(mask) if mask.all() else int(np.argmin(mask))
