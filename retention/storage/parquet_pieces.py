"""Reads of Parquet files a few rows at a time, for any number of values in the lists of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def pieces_of_group(
    opened: pq.ParquetFile, group: int, most: int, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a row group, about `most` values of a column at a time; at least one row.

    Raises:
        OSError, pyarrow.ArrowException: the rows cannot be read.
    """
    metadata = opened.metadata.row_group(group)
    if not metadata.num_rows:
        return
    values = max(metadata.column(at).num_values for at in range(metadata.num_columns))
    rows = max(most * metadata.num_rows // max(values, 1), 1)
    for batch in opened.iter_batches(min(rows, metadata.num_rows), [group], columns):
        yield pa.Table.from_batches([batch])
