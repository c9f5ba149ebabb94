"""The expected statistics of a data file, from log or cache; checked against the file whenever it is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile, ExpectedStats
from retention.core.spoken_commands import given_up
from retention.errors import DamagedError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

EXPECTED_COLUMNS = ("messages", "min_seq", "max_seq", "min_ts_ns", "max_ts_ns", "bytes")
"""The statistics to check a data file against."""
_RANGES = ("seq", "ts_ns")


def expected_stats_of(table: pa.Table) -> list[ExpectedStats]:
    """The expected statistics of each row's file; None for an absent or null column."""
    names = [name for name in EXPECTED_COLUMNS if name in table.schema.names]
    columns = [table[name].to_pylist() for name in names]
    rows = zip(*columns, strict=True) if names else iter([()] * table.num_rows)
    return [ExpectedStats(**dict(zip(names, row, strict=True))) for row in rows]


def check_footer(file: DataFile, opened: pq.ParquetFile) -> None:
    """Check a file's footer against the expected statistics, before its rows are read; skipped if some rows are hidden.

    Raises:
        DamagedError: they differ.
    """
    if file.hides_rows:
        return
    _check(file, {"messages": opened.metadata.num_rows})
    for name in _RANGES:
        if getattr(file.claim, f"min_{name}") is not None:
            bounds = list(_bounds(opened, name))
            if bounds and None not in bounds:
                lowest, highest = zip(*bounds, strict=True)
                _check(file, {f"min_{name}": min(lowest), f"max_{name}": max(highest)})


def check_rows(file: DataFile, rows: pa.Table) -> None:
    """Check the rows of a whole file against the expected statistics, where the columns allow it.

    Raises:
        DamagedError: they differ.
    """
    _check(file, {"messages": rows.num_rows})
    for name in _RANGES:
        if name in rows.schema.names and getattr(file.claim, f"min_{name}") is not None:
            extremes = pc.min_max(rows[name]).as_py()
            _check(file, {f"min_{name}": extremes["min"], f"max_{name}": extremes["max"]})
    if "size" in rows.schema.names:
        _check(file, {"bytes": pc.sum(rows["size"], min_count=0).as_py()})


def _bounds(opened: pq.ParquetFile, name: str) -> Iterator[tuple[Any, Any] | None]:
    column = opened.schema_arrow.get_field_index(name)
    for number in range(opened.metadata.num_row_groups):
        statistics = opened.metadata.row_group(number).column(column).statistics
        yield (
            (statistics.min, statistics.max)
            if statistics is not None and statistics.has_min_max
            else None
        )


def _check(file: DataFile, actual: Mapping[str, object]) -> None:
    for name, value in actual.items():
        claimed = getattr(file.claim, name)
        if claimed is not None and claimed != value:
            raise DamagedError(
                f"{file.location}: holds {name} {value} where the table says {claimed}: this is not the file that "
                f"was committed; nothing was changed; restore it from a copy{given_up(file.stream, file.path)}"
            )
