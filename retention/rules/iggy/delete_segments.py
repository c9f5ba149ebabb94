"""The request `delete-segments` of a topic: a number of the oldest sealed segments of one partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from retention.core.spans import Array
from retention.errors import UsageError
from retention.rules import DELETE_SEGMENTS
from retention.rules.iggy.segments import BY_REQUEST, TopicSegments, is_free, leading

MOST_SEGMENTS = 2**32 - 1
"""The largest count of Iggy's request; it means all segments."""


@dataclass(frozen=True)
class DeleteSegments:
    """Remove the oldest sealed segments of a partition (iggy `DeleteSegments`)."""

    partition: int
    count: int
    """The number of segments to remove."""
    up_to: int | None = None
    """The last offset of these segments at planning time; None: not planned yet, or there are no such segments."""
    rule: ClassVar[str] = DELETE_SEGMENTS
    erase: ClassVar[bool] = False
    """False: removed segments can be restored."""

    @property
    def wording(self) -> str:
        """The request in a few words."""
        return f"delete_segments of partition {self.partition}, the oldest {self.count:,}"


def delete_segments_request(partition: int, count: int) -> DeleteSegments:
    """Make the request to remove a partition's oldest segments; 0 removes none.

    Raises:
        UsageError: a number is out of range.
    """
    if not 0 <= count <= MOST_SEGMENTS:
        raise UsageError(
            f"{count} segments are out of range: give a whole number from 0 to {MOST_SEGMENTS} (all of them)"
        )
    return DeleteSegments(partition, count)


def requested_fates(
    segments: TopicSegments, requested: Mapping[int, int], barriers: Mapping[int, int]
) -> Array:
    """Fates by request: requested segments are removed, oldest first, up to a held one (docs/semantics/topics.md).

    Args:
        segments: the segments of all partitions.
        requested: partition → the offset up to which its sealed segments are requested.
        barriers: partition → the lowest offset stored by a consumer or a group.
    """
    fates = np.zeros(len(segments), dtype=np.int8)
    for partition, part in segments.parts():
        if partition in requested:
            end = segments.end[part]
            free = is_free(end, barriers.get(partition))
            goes = segments.may_go(part) & (end <= requested[partition]) & free
            fates[part][: leading(goes)] = BY_REQUEST
    return fates
