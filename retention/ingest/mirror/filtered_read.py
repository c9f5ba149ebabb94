"""Reading the wanted rows of a data file a part at a time: narrow columns decide, the rest is read for them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.inventory import DataFile
from retention.core.seq_ranges import in_ranges
from retention.datafile.deadline_writer import BUFFER_BYTES
from retention.datafile.parquet import ROW_GROUP_ROWS, open_messages, read_columns, unreadable_error

Wanted = Callable[[pa.Table], np.ndarray]
"""A function from a table with `seq` and `subject` to a mask of the rows that are wanted."""

_NARROW = ["seq", "subject"]


def filtered_rows(file: DataFile, columns: Sequence[str], wanted: Wanted) -> Iterator[pa.Table]:
    """The wanted rows of a file, ascending by `seq`, in tables of at most about `BUFFER_BYTES`.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    opened = open_messages(file)
    try:
        if _rises(opened):
            yield from _by_group(file, opened, columns, wanted)
            return
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error
    rows, _ = read_columns(file, columns)
    yield rows.filter(pa.array(wanted(rows)))


def _rises(opened: pq.ParquetFile) -> bool:
    """Whether the rows lie in the order of their sequences; other writers may leave them otherwise."""
    seqs = opened.read(columns=["seq"])["seq"].to_numpy()
    return bool((np.diff(seqs) > 0).all())


def _by_group(
    file: DataFile, opened: pq.ParquetFile, columns: Sequence[str], wanted: Wanted
) -> Iterator[pa.Table]:
    for group in range(opened.metadata.num_row_groups):
        narrow = opened.read_row_group(group, columns=_NARROW)
        mask = wanted(narrow) & ~in_ranges(narrow["seq"].to_numpy(), file.hidden)
        if not mask.any():
            continue
        metadata = opened.metadata.row_group(group)
        fitting = BUFFER_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
        rows, at = min(max(fitting, 1), ROW_GROUP_ROWS), 0
        for batch in opened.iter_batches(rows, row_groups=[group], columns=list(columns)):
            here = mask[at : at + batch.num_rows]
            at += batch.num_rows
            if here.any():
                yield pa.Table.from_batches([batch]).select(columns).filter(pa.array(here))
