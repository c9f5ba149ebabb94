"""Homes of segments: where messages of a segment belong once it may have been merged into another one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def homes_of(live: pa.Table, segments: pa.Table) -> np.ndarray:
    """The base of the segment in which messages of each segment belong now, int64: its own, unless it was merged away.

    Where segments 1 to 10 and 11 to 20 are one by now, with base 1, the home of 11 is 1; that of 21 is 21, be there
    such a segment or not.

    Args:
        live: the files of a table; `partition`, `segment` and `max_seq`, null where it is not known.
        segments: `partition` and `segment` (the base) of the segments that are asked for.
    """
    homes = segments["segment"].to_numpy().copy()
    partitions = segments["partition"].to_numpy()
    for partition in np.unique(partitions).tolist():
        asked_for = partitions == partition
        there = live.filter(pc.equal(live["partition"], partition)).sort_by("segment")
        bases, reach = there["segment"].to_numpy(), pc.fill_null(there["max_seq"], -1).to_numpy()
        # The last of the files that reach farthest is of the segment which covers what lies below that.
        farthest = np.maximum.accumulate(reach)
        covering = np.maximum.accumulate(np.where(reach == farthest, np.arange(len(reach)), 0))
        before = np.searchsorted(bases, homes[asked_for]) - 1
        known = before >= 0
        merged = np.zeros(len(before), dtype=bool)
        merged[known] = farthest[before[known]] >= homes[asked_for][known]
        moved = homes[asked_for]
        moved[merged] = bases[covering[before[merged]]]
        homes[asked_for] = moved
    return homes
