"""What the log or the statistics say that a data file holds, held against the file itself whenever it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.inventory import Claim, DataFile
from retention.errors import DamagedError

CLAIMED = ("messages", "min_seq", "max_seq", "min_ts_ns", "max_ts_ns", "bytes")
"""The columns of statistics of which a claim consists."""
_RANGES = ("seq", "ts_ns")


def claims_of(table: pa.Table) -> list[Claim]:
    """What each row of `table` says about its file; nothing where a column is absent or null."""
    names = [name for name in CLAIMED if name in table.column_names]
    columns = [table[name].to_pylist() for name in names]
    rows = zip(*columns, strict=True) if names else iter([()] * table.num_rows)
    return [Claim(**dict(zip(names, row, strict=True))) for row in rows]


def check_footer(file: DataFile, opened: pq.ParquetFile) -> None:
    """Hold a file's footer against the claim, before any of its rows is read; not if some of them are hidden.

    Raises:
        DamagedError: it says something else.
    """
    if len(file.hidden):
        return
    _check(file, {"messages": opened.metadata.num_rows})
    for name in _RANGES:
        if getattr(file.claim, f"min_{name}") is not None:
            bounds = list(_bounds(opened, name))
            if bounds and None not in bounds:
                lowest, highest = zip(*bounds, strict=True)
                _check(file, {f"min_{name}": min(lowest), f"max_{name}": max(highest)})


def check_rows(file: DataFile, rows: pa.Table) -> None:
    """Hold the rows of a whole file against the claim, as far as their columns tell.

    Raises:
        DamagedError: they say something else.
    """
    _check(file, {"messages": rows.num_rows})
    for name in _RANGES:
        if name in rows.column_names and getattr(file.claim, f"min_{name}") is not None:
            found = pc.min_max(rows[name]).as_py()
            _check(file, {f"min_{name}": found["min"], f"max_{name}": found["max"]})
    if "size" in rows.column_names:
        _check(file, {"bytes": pc.sum(rows["size"], min_count=0).as_py()})


def _bounds(opened: pq.ParquetFile, name: str) -> Iterator[tuple[Any, Any] | None]:
    column = opened.schema_arrow.get_field_index(name)
    for number in range(opened.metadata.num_row_groups):
        found = opened.metadata.row_group(number).column(column).statistics
        yield (found.min, found.max) if found is not None and found.has_min_max else None


def _check(file: DataFile, found: dict[str, Any]) -> None:
    for name, value in found.items():
        claimed = getattr(file.claim, name)
        if claimed is not None and claimed != value:
            raise DamagedError(
                f"{file.location}: holds {name} {value} where the table says {claimed}: this is not the file that "
                "was committed; nothing was changed; restore it from a copy, or remove it from the table"
            )
