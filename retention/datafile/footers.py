"""The footers of data files: compressed bytes of columns, message ids, and bounds of sequences in a row group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def compressed_bytes(
    opened: pq.ParquetFile, columns: Sequence[str], groups: Sequence[int] | None = None
) -> int:
    """The compressed bytes of columns, in all row groups or in given ones."""
    schema = opened.schema_arrow
    wanted = [schema.get_field_index(name) for name in columns]
    numbers = range(opened.metadata.num_row_groups) if groups is None else groups
    parts = (opened.metadata.row_group(number) for number in numbers)
    return sum(part.column(at).total_compressed_size for part in parts for at in wanted)


def ids_in(opened: pq.ParquetFile) -> int | None:
    """The number of rows with a message id, hidden ones included; None if the footer has no null count."""
    at = opened.schema_arrow.get_field_index("msg_id")
    parts = (opened.metadata.row_group(number) for number in range(opened.metadata.num_row_groups))
    ids = 0
    for part in parts:
        statistics = part.column(at).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        ids += part.num_rows - statistics.null_count
    return ids


def seq_bounds(opened: pq.ParquetFile, group: int) -> tuple[int, int] | None:
    """The lowest and highest sequence of a row group; None without statistics."""
    column = opened.schema_arrow.get_field_index("seq")
    statistics = opened.metadata.row_group(group).column(column).statistics
    return (
        (statistics.min, statistics.max)
        if statistics is not None and statistics.has_min_max
        else None
    )
