"""Ranges of sequences: filters for rows, unions and differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from retention.core.inventory import DataFile, SeqRanges
from retention.core.plain_strings import without_views
from retention.schemas.bounds import MAX_SEQ

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def ranges_in(ranges: np.ndarray | SeqRanges) -> np.ndarray:
    """Ranges of sequences, shape (n, 2), read if necessary."""
    return ranges if isinstance(ranges, np.ndarray) else ranges.read()


def in_ranges(seqs: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """A mask of the `seqs` within one of the ascending, disjoint, inclusive `ranges`; shape (n, 2).

    >>> in_ranges(np.array([1, 4, 5, 9]), np.array([[2, 4], [9, 9]])).tolist()
    [False, True, False, True]
    """
    if not len(ranges):
        return np.zeros(len(seqs), dtype=bool)
    if len(seqs) and np.all(seqs[1:] > seqs[:-1]):
        ranges = _ranges_between(ranges, int(seqs[0]), int(seqs[-1]))
        if len(ranges) < len(seqs):
            return _in_ranges_by_ends(seqs, ranges)
    at = np.searchsorted(ranges[:, 0], seqs, side="right") - 1
    return (at >= 0) & (seqs <= ranges[np.maximum(at, 0), 1])


def _ranges_between(ranges: np.ndarray, first: int, last: int) -> np.ndarray:
    """The ascending, disjoint ranges that have a sequence from `first` to `last`."""
    begin = np.searchsorted(ranges[:, 1], first)
    return ranges[begin : np.searchsorted(ranges[:, 0], last, "right")]


def _in_ranges_by_ends(seqs: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """`in_ranges` of ascending, distinct `seqs`, by a search for each end of a range instead of each sequence."""
    begins = places_of(seqs, ranges[:, 0])
    ends = places_of(seqs, ranges[:, 1], "right")
    filled = begins < ends
    change = np.zeros(len(seqs) + 1, dtype=np.int8)
    change[begins[filled]] += 1
    change[ends[filled]] -= 1
    inside: np.ndarray = np.cumsum(change[:-1], dtype=np.int8).astype(bool)
    return inside


def places_of(
    seqs: np.ndarray, wanted: np.ndarray, side: Literal["left", "right"] = "left"
) -> np.ndarray:
    """The result of `np.searchsorted` in ascending, distinct `seqs`; if they have no gaps, nothing is searched.

    >>> places_of(np.array([4, 5, 6]), np.array([3, 5, 9])).tolist()
    [0, 1, 3]
    """
    if not len(seqs) or seqs[-1] - seqs[0] != len(seqs) - 1:
        return np.searchsorted(seqs, wanted, side=side)
    before = int(seqs[0]) - (side == "right")
    return np.clip(wanted, before, before + len(seqs)) - before


def highest_by_partition(partition: np.ndarray, seqs: np.ndarray) -> dict[int, int]:
    """Partition → the highest of the `seqs` beside it; partitions without any are omitted.

    >>> highest_by_partition(np.array([1, 0, 1]), np.array([7, 9, 8]))
    {0: 9, 1: 8}
    """
    if not len(partition):
        return {}
    if (partition == partition[0]).all():
        return {int(partition[0]): int(seqs.max())}
    order = np.argsort(partition, kind="stable")
    in_order = partition[order]
    starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
    most = np.maximum.reduceat(seqs[order], starts)
    return dict(zip(in_order[starts].tolist(), most.tolist(), strict=True))


def union_of_ranges(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The union of ranges, ascending; adjacent ranges are merged.

    >>> union_of_ranges(np.array([[1, 6], [8, 9]]), np.array([[4, 5], [10, 10]])).tolist()
    [[1, 6], [8, 10]]

    Args:
        first: ascending, disjoint, inclusive ranges; shape (n, 2).
        second: the same.
    """
    if not (len(first) and len(second)):
        return first if len(first) else second
    return merged_ranges(np.concatenate([first, second]))


def merged_ranges(ranges: np.ndarray) -> np.ndarray:
    """Inclusive ranges in any order as ascending, disjoint ones, with adjacent ones merged; shape (n, 2).

    >>> merged_ranges(np.array([[8, 9], [1, 6], [4, 7]])).tolist()
    [[1, 9]]
    """
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    return _joined(np.stack([ranges[:, 0], np.maximum.accumulate(ranges[:, 1])], axis=1))


def difference_of_ranges(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The sequences of the first ranges without those of the second.

    >>> difference_of_ranges(np.array([[1, 9]]), np.array([[1, 2], [5, 5]])).tolist()
    [[3, 4], [6, 9]]

    Args:
        first: ascending, disjoint, inclusive ranges; shape (n, 2).
        second: the same.
    """
    starts, behind = np.concatenate([first, second]).T
    edges = np.unique(np.concatenate([starts, behind + 1]))
    pieces = np.stack([edges[:-1], edges[1:] - 1], axis=1)
    # No edge is inside a piece, so its first sequence decides which ranges contain it.
    kept = pieces[in_ranges(pieces[:, 0], first) & ~in_ranges(pieces[:, 0], second)]
    return _joined(kept)


def complement_of_ranges(ranges: np.ndarray) -> np.ndarray:
    """The ranges of all other valid sequences; shape (n, 2)."""
    return difference_of_ranges(np.array([[0, MAX_SEQ]]), ranges)


def _joined(ranges: np.ndarray) -> np.ndarray:
    """Ascending, disjoint ranges, with adjacent ones merged."""
    if not len(ranges):
        return ranges
    starts = np.append(True, ranges[1:, 0] > ranges[:-1, 1] + 1)
    ends = np.append(starts[1:], True)
    return np.stack([ranges[starts, 0], ranges[ends, 1]], axis=1)


def visible_rows(file: DataFile, rows: Rows) -> Rows:
    """Rows of a file, `seq` among their columns, without the hidden ones."""
    if not file.hides_rows:
        return rows
    gone = in_ranges(rows.column("seq").to_numpy(), ranges_in(file.hidden))
    return without_views(rows).filter(pa.array(~gone))


def columns_with_seq(file: DataFile, columns: Sequence[str]) -> list[str]:
    """The columns to read for `visible_rows`: with `seq` if the file has hidden rows."""
    wanted = list(columns)
    return wanted if "seq" in wanted or not file.hides_rows else [*wanted, "seq"]


def gaps_in(seqs: np.ndarray, first: int, last: int) -> np.ndarray:
    """The ranges of `first` to `last` without a given sequence; int64, ascending, inclusive, shape (n, 2).

    >>> gaps_in(np.array([5, 6, 9]), 3, 10).tolist()
    [[3, 4], [7, 8], [10, 10]]

    Args:
        seqs: int64, ascending, all from `first` to `last`.
        first: the first sequence of interest.
        last: the last one; if it is below `first`, there are none.
    """
    edges = np.concatenate([[first - 1], seqs, [last + 1]]).astype(np.int64)
    places = np.flatnonzero(np.diff(edges) > 1)
    return np.stack([edges[places] + 1, edges[places + 1] - 1], axis=1)
