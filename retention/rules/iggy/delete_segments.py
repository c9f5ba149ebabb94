"""What `delete-segments` asks of a topic: of one partition, so many of its oldest sealed segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from retention.core.spans import Array
from retention.errors import UsageError
from retention.rules import DELETE_SEGMENTS
from retention.rules.iggy.segments import ASKED, TopicSegments, is_free, leading

MOST_SEGMENTS = 2**32 - 1
"""As many as Iggy's request can name: all of them."""


@dataclass(frozen=True)
class DeleteSegments:
    """Remove the oldest sealed segments of a partition (iggy `DeleteSegments`)."""

    partition: int
    count: int
    """So many of them."""
    up_to: int | None = None
    """The last offset of the last of them when it was planned; None: it is not planned yet, or means none."""
    erase: ClassVar[bool] = False
    """What it removes can be brought back."""

    @property
    def rule(self) -> str:
        """The rule that it removes by."""
        return DELETE_SEGMENTS

    @property
    def wording(self) -> str:
        """What it means, in a few words."""
        return f"delete_segments of partition {self.partition}, the oldest {self.count:,}"


def delete_segments_request(partition: int, count: int) -> DeleteSegments:
    """The removal that is asked for; 0 segments are none.

    Raises:
        UsageError: a number is out of range.
    """
    if not 0 <= count <= MOST_SEGMENTS:
        raise UsageError(
            f"{count} segments are out of range: give a whole number from 0 to {MOST_SEGMENTS}, which is all of them"
        )
    return DeleteSegments(partition, count)


def requested_fates(
    segments: TopicSegments, asked: Mapping[int, int], barriers: Mapping[int, int]
) -> Array:
    """What goes because it was asked for, the oldest first, until one is held back (docs/semantics/topics.md).

    Args:
        segments: those of all partitions.
        asked: partition → the offset up to which its sealed segments shall go.
        barriers: partition → the lowest offset that a consumer or a group has stored.
    """
    fates = np.zeros(len(segments), dtype=np.int8)
    for partition, part in segments.parts():
        if partition in asked:
            end = segments.end[part]
            free = is_free(end, barriers.get(partition))
            goes = segments.may_go(part) & (end <= asked[partition]) & free
            fates[part][: leading(goes)] = ASKED
    return fates
