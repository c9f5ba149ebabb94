"""The inventory of a stream: its counters, and statistics of every file, checked against the storage rules."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import highest
from retention.core.counters import Counters
from retention.core.inventory import DataFile
from retention.core.progress import with_progress
from retention.core.read_count import ReadCount
from retention.core.seq_ranges import highest_by_partition
from retention.core.spoken_commands import given_up
from retention.core.wording import counted
from retention.datafile import parquet
from retention.errors import DamagedError, ForeignRowsError, ImpossibleNumbersError
from retention.schemas.files import FILE_STATS
from retention.storage.parallel import in_threads
from retention.stores.checks.number_bounds import remedy
from retention.stores.layout import Layout

_READERS = 2
_ORDER = ("partition", "segment", "min_seq")


def _remedy(stream: str, path: str) -> str:
    return f"nothing was changed; give its rows valid values with the program that wrote it{given_up(stream, path)}"


def describe(data_files: Sequence[DataFile], logged: pa.Table) -> tuple[pa.Table, ReadCount]:
    """Read the narrow columns of files without statistics in the log or a cache.

    Args:
        data_files: the files, at their current locations.
        logged: their rows of `LOGGED_FILES`, in the same order; the source of lengths and times.

    Returns:
        Their statistics, shape `FILE_STATS`, and the cost of reading them.

    Raises:
        ForeignRowsError: a column is missing, has another type, or has forbidden nulls.
        DamagedError: a file cannot be read, or its length differs from the log's.
    """
    reading = in_threads(parquet.describe, data_files, _READERS)
    described = list(with_progress(reading, len(data_files), "reading files that no log describes"))
    read = sum((description.read for description in described), ReadCount())
    rows = parquet.stats_table([description.stats for description in described])
    for file, length, expected in zip(
        data_files, rows["file_bytes"].to_pylist(), logged["file_bytes"].to_pylist(), strict=True
    ):
        if length != expected:
            raise DamagedError(
                f"{file.location}: has {counted(length, 'byte')} instead of the {expected} that were committed; "
                f"nothing was changed; restore the file from a copy{given_up(file.stream, file.path)}"
            )
    at = FILE_STATS.get_field_index("modified_ms")
    return rows.set_column(at, FILE_STATS.field(at), logged["modified_ms"]), read


def describe_live(
    layout: Layout, data_files: Sequence[DataFile], logged: pa.Table
) -> tuple[pa.Table, ReadCount]:
    """Describe live files; the error for impossible numbers names the repair.

    Raises:
        ForeignRowsError, DamagedError: as `describe`.
    """
    try:
        return describe(data_files, logged)
    except ImpossibleNumbersError as error:
        raise ForeignRowsError(
            f"stream {layout.stream}: {error}; {remedy(layout.stream)}"
        ) from error


def in_order(table: pa.Table) -> pa.Table:
    """Statistics sorted by partition, segment, lowest sequence and path."""
    keys = [table[name].to_numpy() for name in _ORDER]
    if _rising(keys):
        return table
    order = np.lexsort(keys[::-1])
    tied = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    if tied.any():
        sort_keys = [(name, "ascending") for name in (*_ORDER, "path")]
        return table.take(pc.sort_indices(table, sort_keys=sort_keys))
    return table.take(pa.array(order))


def refuse_nulls(layout: Layout, files: pa.Table) -> None:
    """Refuse files outside the stream's partitions and segments, and files with logged nulls in required columns.

    Args:
        layout: the stream's layout.
        files: rows of `LOGGED_FILES`, and `nulls_<column>` (int64) where the log counts nulls.

    Raises:
        ForeignRowsError: there is such a file.
    """
    for name in ("partition", "segment"):
        if files[name].null_count:
            path = files.filter(pc.is_null(files[name]))["path"][0].as_py()
            raise ForeignRowsError(
                f"stream {layout.stream}: {path} has no {name}; {_remedy(layout.stream, path)}"
            )
    partition = files["partition"].to_numpy()
    elsewhere = (partition < 0) | (partition >= layout.partitions)
    if elsewhere.any():
        [row] = files.slice(int(np.argmax(elsewhere)), 1).to_pylist()
        raise ForeignRowsError(
            f"stream {layout.stream}: {row['path']} lies in partition {row['partition']}, and {_those_of(layout)}; "
            f"{_remedy(layout.stream, row['path'])}"
        )
    for name in files.schema.names:
        if name.startswith("nulls_") and (highest(files[name]) or 0) > 0:
            [bad] = files.filter(pc.greater(files[name], 0)).slice(0, 1).to_pylist()
            raise ForeignRowsError(
                f"stream {layout.stream}: {bad['path']} has {counted(bad[name], 'row')} without "
                f"{name.removeprefix('nulls_')}; {_remedy(layout.stream, bad['path'])}"
            )


def _those_of(layout: Layout) -> str:
    if layout.partitions == 1:
        return "a stream has partition 0 only"
    return f"the topic has partitions 0 to {layout.partitions - 1} only"


def refuse_known_overlaps(stream: str, live: pa.Table) -> None:
    """Check live files as `refuse_overlaps`, as far as the log has their ranges of sequences."""
    known = live.filter(pc.and_(pc.is_valid(live["min_seq"]), pc.is_valid(live["max_seq"])))
    refuse_overlaps(stream, in_order(known))


def refuse_overlaps(stream: str, files: pa.Table) -> pa.Table:
    """Check the sequence ranges of sorted statistics against the rules of segments.

    Args:
        stream: the stream's name, for the message.
        files: shape `FILE_STATS`, sorted as `in_order` does.

    Returns:
        The files of segments in which ranges of files overlap: only their rows can show whether a sequence occurs
        twice. Here, both files of segment 1; if the next base were 6, the second file would be refused:
            segment 1, sequences 1 to 4
            segment 1, sequences 3 to 6
            segment 7, sequences 7 to 9

    Raises:
        ForeignRowsError: a sequence is below its segment's base, or not below the base of the next segment.
    """
    partition, segment, low, high = (
        files[name].to_numpy() for name in ("partition", "segment", "min_seq", "max_seq")
    )
    below = np.flatnonzero(low < segment)
    if len(below):
        _refuse(stream, files, int(below[0]), "below the base of its segment")
    reach = _running_maximum(partition, high)
    same_partition = partition[1:] == partition[:-1]
    new_segment = same_partition & (segment[1:] != segment[:-1])
    beyond = np.flatnonzero(new_segment & (reach[:-1] >= segment[1:]))
    if len(beyond):
        _refuse(stream, files, int(beyond[0]), f"not below {segment[beyond[0] + 1]}, the next base")
    overlap = same_partition & ~new_segment & (low[1:] <= reach[:-1])
    if not overlap.any():
        return files.slice(0, 0)
    number = np.cumsum(np.concatenate([[True], ~same_partition | new_segment]))
    return files.filter(pa.array(np.isin(number, number[1:][overlap])))


def effective(counters: Counters, files: pa.Table) -> Counters:
    """Counters, raised to the values that the files prove; a mirror appends without raising them.

    A file of segment 1 with `max_seq` 6 proves 7 as the next sequence, and 1 as the open base.

    Args:
        counters: the log's counters.
        files: columns partition, segment, and max_seq (null if unknown).
    """
    highest = _highest(files["partition"], files["max_seq"])
    bases = _highest(files["partition"], files["segment"])
    next_seq = {p: max(seq + 1, counters.next_seq.get(p, 0)) for p, seq in highest.items()}
    open_base = {p: max(base, counters.open_base.get(p, 0)) for p, base in bases.items()}
    return Counters(
        ChainMap(next_seq, counters.next_seq),  # type: ignore[arg-type]
        ChainMap(open_base, counters.open_base),  # type: ignore[arg-type]
        counters.batches,
        counters.edits,
        counters.removed,
    )


def _highest(partition: pa.ChunkedArray, values: pa.ChunkedArray) -> dict[int, int]:
    """The highest value of each partition; rows with a null do not count."""
    if partition.null_count or values.null_count:
        known = pc.and_(pc.is_valid(partition), pc.is_valid(values))
        partition, values = partition.filter(known), values.filter(known)
    return highest_by_partition(partition.to_numpy(), values.to_numpy())


def _rising(keys: Sequence[np.ndarray]) -> bool:
    """Whether rows strictly rise in the order of their keys."""
    rises = np.zeros(max(len(keys[0]) - 1, 0), dtype=bool)
    for key in reversed(keys):
        rises = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & rises)
    return bool(rises.all())


def _running_maximum(partition: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Highest value so far within each partition, which is sorted: 0 0 1 1 with values 4 3 2 5 gives 4 4 2 5."""
    starts = np.flatnonzero(
        np.concatenate([[True], partition[1:] != partition[:-1]])[: len(values)]
    )
    pieces = np.split(values, starts[1:])
    return np.concatenate([np.maximum.accumulate(piece) for piece in pieces])


def _refuse(stream: str, files: pa.Table, at: int, what: str) -> NoReturn:
    row = files.slice(at, 1).to_pylist()[0]
    raise ForeignRowsError(
        f"stream {stream}: {row['path']} holds sequences {row['min_seq']} to {row['max_seq']}, {what}; "
        f"{_remedy(stream, row['path'])}"
    )
