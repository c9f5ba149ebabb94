"""Unhiding rows that a run has hidden in live files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile, ExpectedStats
from retention.core.seq_ranges import difference_of_ranges, ranges_in
from retention.core.spans import Array
from retention.datafile.parquet import describe
from retention.stores.row_tombstones import recorded_file
from retention.stores.tombstone_files import file_tables
from schemas.files import FILE_STATS, LOGGED_FILES


def record_without(
    opened: OpenedStream, number: int, live: pa.Table, shown: Mapping[str, Array]
) -> int:
    """Write a record of row tombstones without some rows; return its number.

    Args:
        opened: the stream.
        number: that of the current record.
        live: its files, shape `FILE_STATS`, without their hidden rows.
        shown: path of a live file → the sequences to unhide, as ascending ranges; shape (n, 2).
    """
    record, paths = opened.store.released(number), pa.array(list(shown), pa.string())
    stays = pc.invert(pc.is_in(record.files["path"], paths)).to_numpy()
    there = live.filter(pc.is_in(live["path"], paths))
    rows = (_row(file, row, shown[file.path]) for file, row in _located(opened, there))
    hiding = file_tables(row for row in rows if row is not None)
    return opened.store.keep_released(chain(record.tables(stays), hiding))


def _located(opened: OpenedStream, there: pa.Table) -> Iterator[tuple[DataFile, dict[str, Any]]]:
    stored = opened.store.stored(there.select(FILE_STATS.names)).to_pylist()
    yield from zip(opened.store.data_files(there), stored, strict=True)


def _row(
    file: DataFile, stored: dict[str, Any], shown: Array
) -> tuple[dict[str, Any], Array] | None:
    """The record's row for a file after some hidden rows are shown; None: no row is hidden in it any more."""
    hidden = difference_of_ranges(ranges_in(file.hidden), shown)
    if not len(hidden):
        return None
    left = describe(replace(file, hidden=hidden, claim=ExpectedStats())).stats
    pin = {name: stored[name] for name in LOGGED_FILES.names}
    return recorded_file(left | pin, stored), hidden
