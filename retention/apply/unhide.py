"""Showing rows again that a run has hidden in files which are still live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile, ExpectedStats
from retention.core.spans import Array
from retention.datafile.parquet import describe
from retention.stores.row_tombstones import record_row
from schemas.files import FILE_STATS, LOGGED_FILES, TOMBSTONED_FILES


def record_without(opened: OpenedStream, live: pa.Table, shown: Mapping[str, Array]) -> int:
    """Write the record of row tombstones in which some rows are hidden no more; its number.

    Args:
        opened: the stream.
        live: its files, shape `FILE_STATS`, without what is hidden in them.
        shown: path of a live file → the sequences to show again, as ascending ranges; shape (n, 2).
    """
    record = opened.store.released(opened.store.snapshot().counters.released)
    touched = pc.is_in(record["path"], pa.array(list(shown), pa.string()))
    there = live.filter(pc.is_in(live["path"], pa.array(list(shown), pa.string())))
    rows = [_row(file, row, shown[file.path]) for file, row in _located(opened, there)]
    kept = pa.Table.from_pylist([row for row in rows if row is not None], schema=TOMBSTONED_FILES)
    return opened.store.keep_released(pa.concat_tables([record.filter(pc.invert(touched)), kept]))


def _located(opened: OpenedStream, there: pa.Table) -> Iterator[tuple[DataFile, dict[str, Any]]]:
    stored = opened.store.stored(there.select(FILE_STATS.names)).to_pylist()
    yield from zip(opened.store.data_files(there), stored, strict=True)


def _row(file: DataFile, stored: dict[str, Any], shown: Array) -> dict[str, Any] | None:
    """The record's row of a file of which some hidden rows are shown; None: nothing is hidden in it any more."""
    hidden = difference_of_ranges(file.hidden, shown)
    if not len(hidden):
        return None
    left = describe(replace(file, hidden=hidden, claim=ExpectedStats())).stats
    pin = {name: stored[name] for name in LOGGED_FILES.names}
    return record_row(left | pin, stored, hidden)


def difference_of_ranges(first: Array, second: Array) -> Array:
    """The sequences of the first ranges that are in none of the second.

    >>> difference_of_ranges(np.array([[1, 9]]), np.array([[1, 2], [5, 5]])).tolist()
    [[3, 4], [6, 9]]

    Args:
        first: ascending, disjoint, inclusive ranges; shape (n, 2).
        second: the same.
    """
    edges = np.unique(
        np.concatenate([first[:, 0], first[:, 1] + 1, second[:, 0], second[:, 1] + 1])
    )
    pieces = np.stack([edges[:-1], edges[1:] - 1], axis=1)
    kept = pieces[_covered(first, pieces) & ~_covered(second, pieces)]
    joins = np.append(True, kept[1:, 0] > kept[:-1, 1] + 1) if len(kept) else np.zeros(0, bool)
    ends = np.append(joins[1:], True)[: len(kept)]
    return np.stack([kept[joins, 0], kept[ends, 1]], axis=1)


def _covered(ranges: Array, pieces: Array) -> Array:
    """A mask of the pieces that lie in one of the ranges, of which no edge is inside a piece."""
    at = np.searchsorted(ranges[:, 0], pieces[:, 0], side="right") - 1
    return (at >= 0) & (pieces[:, 0] <= ranges[np.maximum(at, 0), 1])
