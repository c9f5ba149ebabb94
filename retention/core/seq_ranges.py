"""Ranges of sequences that are gone while a data file still holds them: reading past them, and joining them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from retention.core.inventory import NO_RANGES, DataFile

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def in_ranges(seqs: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Which of `seqs` lie in one of the ascending, disjoint, inclusive `ranges`; a mask."""
    if not len(ranges):
        return np.zeros(len(seqs), dtype=bool)
    at = np.searchsorted(ranges[:, 0], seqs, side="right") - 1
    return (at >= 0) & (seqs <= ranges[np.maximum(at, 0), 1])


def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The ranges of both, ascending; neighbours become one.

    Args:
        first: ascending, disjoint, inclusive ranges; shape (n, 2).
        second: the same, of which none meets one of the first.
    """
    if not (len(first) and len(second)):
        return first if len(first) else second
    ranges = np.concatenate([first, second])
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    starts = np.append(True, ranges[1:, 0] > ranges[:-1, 1] + 1)
    ends = np.append(starts[1:], True)
    return np.stack([ranges[starts, 0], ranges[ends, 1]], axis=1)


def visible(file: DataFile, rows: Rows) -> Rows:
    """Rows of a file, `seq` among their columns, without those that are hidden of it."""
    if not len(file.hidden):
        return rows
    gone = in_ranges(rows.column("seq").to_numpy(), file.hidden)
    return rows.filter(pa.array(~gone))


def with_seq(file: DataFile, columns: Sequence[str]) -> list[str]:
    """The columns to read of a file so that it can be told which rows are hidden."""
    wanted = list(columns)
    return wanted if "seq" in wanted or file.hidden is NO_RANGES else [*wanted, "seq"]
