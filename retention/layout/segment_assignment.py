"""Assignment of restored messages to segments: their own, or those that a merge or another restore made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.seq_ranges import complement_of_ranges
from retention.schemas.bounds import MAX_SEQ

_COMING = ["partition", "segment", "max_seq"]


def segment_of_rows(live: pa.Table, segments: pa.Table) -> np.ndarray:
    """The base of the current segment for messages of each segment, int64: its own base, unless it was merged away.

    If segments 1 to 10 and 11 to 20 were merged into one with base 1, messages of 11 belong to 1; those of 21
    belong to 21, whether that segment exists or not.

    Args:
        live: the files of a table; `partition`, `segment` and `max_seq` (null if unknown).
        segments: `partition` and `segment` (the base) of the requested segments.
    """
    assigned = segments["segment"].to_numpy().copy()
    partitions = segments["partition"].to_numpy()
    for partition in np.unique(partitions).tolist():
        asked_for = partitions == partition
        there = live.filter(pc.equal(live["partition"], partition)).sort_by("segment")
        bases, reach = there["segment"].to_numpy(), pc.fill_null(there["max_seq"], -1).to_numpy()
        # The last of the farthest-reaching files is in the segment that covers all sequences below.
        farthest = np.maximum.accumulate(reach)
        covering = np.maximum.accumulate(np.where(reach == farthest, np.arange(len(reach)), 0))
        before = np.searchsorted(bases, assigned[asked_for]) - 1
        known = before >= 0
        merged = np.zeros(len(before), dtype=bool)
        merged[known] = farthest[before[known]] >= assigned[asked_for][known]
        moved = assigned[asked_for]
        moved[merged] = bases[covering[before[merged]]]
        assigned[asked_for] = moved
    return assigned


def divided_mask(live: pa.Table, files: pa.Table) -> np.ndarray:
    """A mask of the files with messages of several current segments: another base is above theirs and in their range.

    Args:
        live: the files of a table; `partition` and `segment`.
        files: `partition`, `segment` (that of their lowest messages, from `segment_of_rows`) and `max_seq`.
    """
    partitions, assigned, last = (
        files[name].to_numpy() for name in ("partition", "segment", "max_seq")
    )
    divided = np.zeros(len(partitions), dtype=bool)
    for partition in np.unique(partitions).tolist():
        of, bases = partitions == partition, _bases(live, partition)
        behind, within = (
            np.searchsorted(bases, ends[of], side="right") for ends in (assigned, last)
        )
        divided[of] = within > behind
    return divided


@dataclass(frozen=True)
class SegmentAssignment:
    """The segments for messages that are restored to a table."""

    bases: pa.Table
    """`partition` and `segment` of all segments after the restore."""
    segments: list[int]
    """The segment of the lowest messages of each restored file."""
    divided: list[bool]
    """Whether each restored file also has messages of other segments."""

    @classmethod
    def of(cls, live: pa.Table, files: Sequence[tuple[int, int, int]]) -> SegmentAssignment:
        """Assign segments to files.

        Args:
            live: the files of a table; `partition`, `segment` and `max_seq`.
            files: the restored files: partition, original segment, and highest sequence.
        """
        columns = [pa.array(column, pa.int64()) for column in zip(*files, strict=True)]
        coming = pa.table(columns or [pa.nulls(0, pa.int64())] * 3, _COMING)
        assigned = segment_of_rows(live, coming)
        placed = coming.set_column(1, "segment", pa.array(assigned))
        there = live.select(_COMING[:2]).cast(placed.select(_COMING[:2]).schema)
        bases = pa.concat_tables([there, placed.select(_COMING[:2])])
        return cls(bases, assigned.tolist(), divided_mask(bases, placed).tolist())

    def stretches(self, partition: int, lowest: int) -> list[tuple[int, int]]:
        """The segments for messages from `lowest` on: the base and the last sequence of each.

        Messages 20 to 30 of a segment 17 that was merged away are split if a segment 22 was restored since: (17, 21)
        and (22, the highest sequence).
        """
        bases = _bases(self.bases, partition)
        cuts = [lowest, *bases[bases > lowest].tolist(), MAX_SEQ + 1]
        return [(base, end - 1) for base, end in pairwise(cuts)]

    def shares(
        self, partition: int, lowest: int, seqs: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, int]]:
        """The segments of given messages: base, the ranges outside the segment, and the number of its messages."""
        for base, last in self.stretches(partition, lowest):
            messages = int(((seqs >= base) & (seqs <= last)).sum())
            if messages:
                yield base, complement_of_ranges(np.array([[base, last]])), messages


def _bases(live: pa.Table, partition: int) -> np.ndarray:
    return np.unique(live.filter(pc.equal(live["partition"], partition))["segment"].to_numpy())
