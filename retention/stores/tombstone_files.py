"""Records of row tombstones as Parquet files, read and written a few data files at a time if they are large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.file_records import check_columns, check_file_records
from retention.core.inventory import SeqRanges
from retention.core.seq_ranges import ranges_in
from retention.errors import DamagedError, StorageError
from retention.storage import files
from retention.storage.errors import first_line
from retention.storage.parquet_pieces import pieces_of_group
from schemas.files import TOMBSTONED_FILES, TOMBSTONED_STATS

MOST_HELD = 1 << 18
"""The number of ranges in memory at a time, in whole files; a record with more keeps none in memory."""
_LISTS = ("first_seqs", "last_seqs")
_SPOOLED_BYTES = 8 << 20
"""The maximum bytes of a record to buffer in memory; a larger one is buffered in a temporary file."""


@dataclass(frozen=True)
class RecordedRanges:
    """The released ranges of one data file in a record; picklable, so that tasks can read them."""

    place: str
    row: int
    """The data file's row number in the record."""

    def read(self) -> np.ndarray:
        """The ranges, ascending, both ends inclusive; shape (n, 2).

        Raises:
            DamagedError: the record is missing or cannot be read.
        """
        with _judged(self.place), _opened(self.place) as record:
            group, before = 0, 0
            while before + record.metadata.row_group(group).num_rows <= self.row:
                before += record.metadata.row_group(group).num_rows
                group += 1
            for table in pieces_of_group(record, group, MOST_HELD, _LISTS):
                if self.row < before + table.num_rows:
                    return ranges_of(table.slice(self.row - before, 1))[0]
                before += table.num_rows
        raise DamagedError(_unreadable(self.place, "rows are missing"))


def tables(place: str) -> Iterator[pa.Table]:
    """The rows of a record, about `MOST_HELD` ranges at a time; shape `TOMBSTONED_FILES`.

    Raises:
        DamagedError: the record is missing or cannot be read.
    """
    with _judged(place), _opened(place) as record:
        for group in range(record.metadata.num_row_groups):
            # An earlier version wrote all ranges into one row group.
            for table in pieces_of_group(record, group, MOST_HELD):
                _check(table)
                yield table


def checked(place: str) -> tuple[pa.Table, pa.Table | None]:
    """A record's statistics (`TOMBSTONED_STATS`), with every range checked; and the full record unless it is large.

    Raises:
        DamagedError: the record is missing or cannot be read.
    """
    stats, held, ranges = [TOMBSTONED_STATS.empty_table()], [TOMBSTONED_FILES.empty_table()], 0
    for table in tables(place):
        stats.append(table.select(TOMBSTONED_STATS.names))
        ranges += len(pc.list_flatten(table["first_seqs"]))
        if ranges <= MOST_HELD:
            held.append(table)
        else:
            held.clear()
    together = pa.concat_tables(stats)
    with _judged(place):
        check_file_records(together, TOMBSTONED_STATS)
    return together, pa.concat_tables(held) if held else None


@contextmanager
def _judged(place: str) -> Iterator[None]:
    """Refuse a record that the block cannot read.

    Raises:
        DamagedError: the record cannot be read.
        StorageError: the storage failed.
    """
    try:
        yield
    except StorageError:
        raise
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise DamagedError(_unreadable(place, first_line(error))) from error


def _unreadable(place: str, what: str) -> str:
    return (
        f"{place}: the record of what is released in a stream cannot be read ({what}); nothing was changed; restore it "
        "from a copy"
    )


def file_tables(
    rows: Iterable[tuple[dict[str, Any], np.ndarray | SeqRanges]],
) -> Iterator[pa.Table]:
    """Rows of a record, about `MOST_HELD` ranges at a time; shape `TOMBSTONED_FILES`.

    Args:
        rows: each data file's row of `TOMBSTONED_STATS`, and its released ranges; [[3, 5], [9, 9]] becomes
            `first_seqs` [3, 9], `last_seqs` [5, 9].
    """
    waiting: list[tuple[dict[str, Any], np.ndarray]] = []
    held = 0
    for stats, ranges in rows:
        waiting.append((stats, ranges_in(ranges)))
        held += len(waiting[-1][1])
        if held >= MOST_HELD:
            yield _table(waiting)
            waiting, held = [], 0
    if waiting:
        yield _table(waiting)


def _table(rows: list[tuple[dict[str, Any], np.ndarray]]) -> pa.Table:
    stats = pa.Table.from_pylist([row for row, _ in rows], schema=TOMBSTONED_STATS)
    together = np.concatenate([ranges for _, ranges in rows])
    offsets = np.append(0, np.cumsum([len(ranges) for _, ranges in rows]))
    lists = [
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(together[:, end]))
        for end in range(len(_LISTS))
    ]
    return pa.table([*stats.columns, *lists], schema=TOMBSTONED_FILES)


def ranges_of(table: pa.Table) -> list[np.ndarray]:
    """The released ranges of each file of a table with `first_seqs` and `last_seqs`; shape (n, 2) each."""
    firsts, lasts = (table[name].combine_chunks() for name in _LISTS)
    return [
        np.stack([firsts[at].values.to_numpy(), lasts[at].values.to_numpy()], axis=1)
        for at in range(table.num_rows)
    ]


@contextmanager
def spooled(content: Iterable[pa.Table]) -> Iterator[Callable[[], Iterator[bytes]]]:
    """Spool a record in row groups of about `MOST_HELD` ranges; yields a function that reads it from its start."""
    with SpooledTemporaryFile(_SPOOLED_BYTES) as spool:
        with pq.ParquetWriter(
            spool, TOMBSTONED_FILES, compression="zstd", write_page_checksum=True
        ) as writer:
            for group in _groups(content):
                writer.write_table(group.combine_chunks())

        def pieces() -> Iterator[bytes]:
            spool.seek(0)
            while piece := spool.read(_SPOOLED_BYTES):
                yield piece

        yield pieces


def _groups(content: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in new groups: few files with many ranges each, or many files with few."""
    waiting, held = [TOMBSTONED_FILES.empty_table()], 0
    for table in content:
        for piece, ranges in _pieces(table):
            if held and held + ranges > MOST_HELD:
                yield pa.concat_tables(waiting)
                waiting, held = [], 0
            waiting.append(piece)
            held += ranges
    yield pa.concat_tables(waiting)


def _pieces(table: pa.Table) -> Iterator[tuple[pa.Table, int]]:
    """Slices of a table, each with the number of its ranges: at most `MOST_HELD`, or the ranges of one file."""
    ends = np.cumsum(pc.list_value_length(table["first_seqs"]).to_numpy())
    start, before = 0, 0
    while start < len(ends):
        end = max(int(np.searchsorted(ends, before + MOST_HELD, side="right")), start + 1)
        yield table.slice(start, end - start), int(ends[end - 1]) - before
        start, before = end, int(ends[end - 1])


@contextmanager
def _opened(place: str) -> Iterator[pq.ParquetFile]:
    with files.open_input(place) as source:
        yield pq.ParquetFile(source, page_checksum_verification=True)


def _check(table: pa.Table) -> None:
    """Refuse rows that do not form a record, and ranges that are invalid or not ascending.

    Raises:
        ValueError: names the fault.
    """
    check_columns(table, TOMBSTONED_FILES)
    lengths = [pc.list_value_length(table[name]).to_numpy() for name in _LISTS]
    if (lengths[0] != lengths[1]).any():
        raise ValueError("first_seqs and last_seqs are not as many")
    ends = [pc.list_flatten(table[name]) for name in _LISTS]
    if any(end.null_count for end in ends):
        raise ValueError("first_seqs and last_seqs are no ascending ranges of sequences")
    low, high = (end.to_numpy() for end in ends)
    row = np.repeat(np.arange(table.num_rows), lengths[0])
    follows = row[1:] == row[:-1]
    if (low < 0).any() or (low > high).any() or (follows & (low[1:] < high[:-1])).any():
        raise ValueError("first_seqs and last_seqs are no ascending ranges of sequences")
