"""One pass over a topic by Iggy's rules, and the segments held for consumers (docs/semantics/topics.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.rules.iggy.delete_segments import requested_fates
from retention.rules.iggy.segments import STAYS, TopicSegments, leading
from retention.rules.iggy.v08 import fates_v8
from retention.rules.iggy.v09 import fates_modern

_FATES = {"modern": fates_modern, "v8": fates_v8}
NOTHING_REQUESTED: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True)
class TopicPass:
    """The decisions of one pass; one entry per segment: `STAYS`, `BY_AGE`, `BY_SIZE` or `BY_REQUEST`."""

    fates: Array
    held: Array
    """For each kept segment: its fate without stored offsets of consumers and groups."""


def topic_pass(
    segments: TopicSegments,
    policy: TopicPolicy,
    now_us: int,
    barriers: Mapping[int, int],
    requested: Mapping[int, int] = NOTHING_REQUESTED,
) -> TopicPass:
    """Decide a pass like the cleaner of the profile's server (docs/semantics/topics.md).

    Args:
        segments: the segments of all partitions.
        policy: the limits, and the profile that interprets them.
        now_us: the pass's one instant, microseconds since the epoch.
        barriers: partition → the offset of `barrier_of`; other partitions have no barrier.
        requested: partition → the offset up to which `delete-segments` is requested; servers of 0.8 ignore it.
    """

    def fates_with(barriers: Mapping[int, int]) -> Array:
        fates = _FATES[policy.profile](segments, policy, now_us, barriers)
        if policy.profile == "v8":
            return fates
        return np.where(fates == STAYS, requested_fates(segments, requested, barriers), fates)

    unhindered = fates_with({})
    if not barriers or not policy.respect_consumer_offsets:
        return TopicPass(unhindered, np.full_like(unhindered, STAYS))
    fates = fates_with(barriers)
    return TopicPass(fates, np.where(fates == STAYS, unhindered, STAYS))


def barrier_of(stored: Iterable[int]) -> int | None:
    """The offset of the slowest of a partition's consumers and groups; None if none stored an offset."""
    return min(stored, default=None)


def reached_by(segments: TopicSegments, part: slice, count: int) -> int | None:
    """The last offset of a partition's `count` oldest sealed segments (`delete-segments`); None: it has none."""
    able = min(leading(segments.may_go(part)), count)
    return int(segments.end[part][able - 1]) if able else None
