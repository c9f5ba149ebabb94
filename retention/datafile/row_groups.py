"""Reads of data files by row groups: a few rows, or all of them in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.inventory import DataFile
from retention.core.message_rows import time_of
from retention.core.seq_ranges import visible_rows
from retention.datafile.parquet import (
    SMALL_BYTES,
    in_sequence_order,
    open_all_messages,
    open_messages,
    read_columns,
    unreadable_error,
)
from retention.schemas.messages import FILE_COLUMNS

COLUMNS = [name for name in FILE_COLUMNS.names if name != "time"]
"""The columns to read; `time` is derived from `ts_ns`, because other writers may set it finer, otherwise or never."""
_FEW, _FEW_ROWS, _MANY_ROWS = 64, 4_096, 65_536
"""The maximum of "few" rows to pick, and the number of rows to decode at once when picking few or many."""
_UNKNOWN = (0, 2**63 - 1)
"""The bounds of a row group without statistics; they overlap any others."""


def pick_rows(file: DataFile, seqs: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """The rows of a file with the ascending sequences `seqs`, in order; `columns` include `seq`.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    shape = _shape(tuple(columns))
    picked = [batch.cast(shape) for batch in _picked(file, seqs, columns)]
    return pa.concat_tables([shape.empty_table(), *picked]).sort_by("seq")


def rows_in_order(file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """All rows of a file, ascending by `seq`: by row group if the groups are disjoint, otherwise all at once.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    # Payloads are most of a file.
    opened = open_all_messages(file) if "payload" in columns else open_messages(file)
    yield from opened_rows_in_order(file, opened, columns)


def opened_rows_in_order(
    file: DataFile, opened: pq.ParquetFile, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """All rows of an opened file, as `rows_in_order`.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    if not has_ordered_groups(opened):
        yield read_columns(file, columns)[0]
        return
    for number in range(opened.metadata.num_row_groups):
        yield rows_of_group(file, opened, number, columns)


def with_time(rows: pa.Table) -> pa.Table:
    """Rows with `COLUMNS` in shape `FILE_COLUMNS`, with `time` derived from `ts_ns`."""
    timed = rows.append_column("time", time_of(rows["ts_ns"]))
    return timed.select(FILE_COLUMNS.names).cast(FILE_COLUMNS)


def seq_bounds(opened: pq.ParquetFile, group: int) -> tuple[int, int] | None:
    """The lowest and highest sequence of a row group; None without statistics."""
    column = opened.schema_arrow.get_field_index("seq")
    statistics = opened.metadata.row_group(group).column(column).statistics
    return (
        (statistics.min, statistics.max)
        if statistics is not None and statistics.has_min_max
        else None
    )


def has_ordered_groups(opened: pq.ParquetFile) -> bool:
    """Whether every sequence of a row group is above those of the row groups before it."""
    groups = range(opened.metadata.num_row_groups)
    bounds = [seq_bounds(opened, group) or _UNKNOWN for group in groups]
    return all(later[0] > earlier[1] for earlier, later in pairwise(bounds))


def rows_of_group(
    file: DataFile, opened: pq.ParquetFile, number: int, columns: Sequence[str]
) -> pa.Table:
    """The visible rows of a row group, ascending by `seq`.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    return in_sequence_order(visible_rows(file, stored_rows(file, opened, number, columns)))


def stored_rows(
    file: DataFile, opened: pq.ParquetFile, number: int, columns: Sequence[str]
) -> pa.Table:
    """All rows of a row group as they are stored, hidden ones included, in no particular order.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    # For a small group, decoding is faster than handing columns to threads.
    is_large = opened.metadata.row_group(number).total_byte_size > SMALL_BYTES
    try:
        rows = opened.read_row_group(number, list(columns), use_threads=is_large)
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error
    return _shaped(rows, columns)


def merged_by_seq(sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merge sources of tables, each ascending by `seq` and possibly interleaving; holds about one table of each.

    source A   1 4 | 9      the tables [1 4] and [2 5] are held: both sources are known up to 4,
    source B   2 5 | 6      so 1 2 4 are yielded, and 5 waits for the next table of A
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    held: dict[int, pa.Table] = {}
    waiting = dict(enumerate(sources))
    while waiting or held:
        for number in waiting.keys() - held.keys():
            table = next(waiting[number], None)
            if table is None:
                del waiting[number]
            elif table.num_rows:
                held[number] = table
        if held and waiting.keys() <= held.keys():
            # A source's remaining rows all follow its held ones.
            reach = min(rows["seq"][-1].as_py() for rows in held.values())
            ends = {
                n: int(np.searchsorted(rows["seq"], reach, "right")) for n, rows in held.items()
            }
            ready = [rows.slice(0, ends[number]) for number, rows in held.items()]
            yield in_sequence_order(pa.concat_tables(ready))
            rests = {number: rows.slice(ends[number]) for number, rows in held.items()}
            held = {number: rows for number, rows in rests.items() if rows.num_rows}


def _picked(file: DataFile, seqs: np.ndarray, columns: Sequence[str]) -> Iterator[pa.Table]:
    opened = open_messages(file)
    groups = [
        number
        for number in range(opened.metadata.num_row_groups)
        if _may_hold(opened, number, seqs)
    ]
    missing = len(seqs)
    rows = _FEW_ROWS if missing <= _FEW else _MANY_ROWS
    try:
        for batch in opened.iter_batches(rows, row_groups=groups, columns=list(columns)):
            wanted = np.isin(batch.column("seq").to_numpy(), seqs)
            picked = pa.Table.from_batches([batch]).select(columns).filter(pa.array(wanted))
            yield visible_rows(file, picked)
            # No sequence occurs twice, so the following rows need not be decoded.
            missing -= picked.num_rows
            if not missing:
                return
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error


def _may_hold(opened: pq.ParquetFile, group: int, seqs: np.ndarray) -> bool:
    bounds = seq_bounds(opened, group)
    if bounds is None:
        return True
    lowest, highest = bounds
    return bool(np.searchsorted(seqs, lowest) < np.searchsorted(seqs, highest, side="right"))


def _shaped(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows with these columns in this order, and the types of message tables."""
    ordered, shape = rows.select(columns), _shape(tuple(columns))
    if ordered.schema.types == shape.types:
        return pa.Table.from_arrays(ordered.columns, schema=shape)
    return ordered.cast(shape)


@cache
def _shape(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([FILE_COLUMNS.field(name).with_nullable(nullable=True) for name in columns])
