"""Reading some rows of a data file, by their sequences, from no more row groups than hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention.parquet_files import damaged, open_messages, seq_bounds
from retention.segments import DataFile
from schemas.messages import FILE_COLUMNS


def pick_rows(file: DataFile, seqs: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """The rows of a file that have one of the ascending `seqs`, ascending; `seq` is among `columns`.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    shape = pa.schema([FILE_COLUMNS.field(name).with_nullable(nullable=True) for name in columns])
    picked = [batch.cast(shape) for batch in _picked(file, seqs, columns)]
    return pa.concat_tables([shape.empty_table(), *picked]).sort_by("seq")


def _picked(file: DataFile, seqs: np.ndarray, columns: Sequence[str]) -> Iterator[pa.Table]:
    opened = open_messages(file)
    groups = [
        number
        for number in range(opened.metadata.num_row_groups)
        if _may_hold(opened, number, seqs)
    ]
    try:
        for batch in opened.iter_batches(row_groups=groups, columns=list(columns)):
            wanted = np.isin(batch.column("seq").to_numpy(), seqs)
            yield pa.Table.from_batches([batch]).select(columns).filter(pa.array(wanted))
    except (OSError, pa.ArrowException) as error:
        raise damaged(file, error) from error


def _may_hold(opened: pq.ParquetFile, group: int, seqs: np.ndarray) -> bool:
    bounds = seq_bounds(opened, group)
    if bounds is None:
        return True
    lowest, highest = bounds
    return bool(np.searchsorted(seqs, lowest) < np.searchsorted(seqs, highest, side="right"))
