"""Ranges without holes: the sequences of a file removed as a whole are read before it is deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.context.context import OpenedStream
from retention.core.seq_ranges import in_ranges, visible_rows
from retention.core.vector_paths import data_path
from retention.errors import DamagedError
from retention.storage import files
from retention.storage.parallel import in_threads

_AT_A_TIME = 1 << 20
"""Messages of files read at a time; a file has at most one more hole than messages."""
_EXCEPTED = ("except_firsts", "except_lasts")
Array = np.ndarray[Any, Any]


def has_holes(rows: pa.Table) -> pa.Array:
    """A mask of the ranges with missing sequences.

    Args:
        rows: shape `RUN_RANGES`.
    """
    spans = pc.add(pc.subtract(rows["last_seq"], rows["first_seq"]), 1).to_numpy()
    return pa.array(rows["messages"].to_numpy() != spans - _excepted_in(rows))


def without_holes(opened: OpenedStream, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same ranges in batches, with their holes added to the exceptions where the files exist.

    Args:
        opened: the stream.
        tables: shape `RUN_RANGES`.
    """
    for table in tables:
        holes = has_holes(table).to_numpy(zero_copy_only=False)
        ends = np.cumsum(np.where(holes, table["messages"].to_numpy(), 0))
        start, before = 0, 0
        while start < table.num_rows:
            end = max(int(np.searchsorted(ends, before + _AT_A_TIME, side="right")), start + 1)
            yield _filled(opened, table.slice(start, end - start), holes[start:end])
            start, before = end, int(ends[end - 1])


def _filled(opened: OpenedStream, rows: pa.Table, holes: Array) -> pa.Table:
    if not holes.any():
        return rows
    lists = {name: rows[name].to_pylist() for name in _EXCEPTED}
    wanted = np.flatnonzero(holes).tolist()
    exact = in_threads(
        partial(_exceptions, opened),
        rows.take(pa.array(wanted)).to_pylist(),
        files.read_parallelism(opened.root),
    )
    for at, exceptions in zip(wanted, exact, strict=True):
        if exceptions is not None:
            for end, name in enumerate(_EXCEPTED):
                lists[name][at] = exceptions[:, end]
    for name in _EXCEPTED:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(
            at, rows.schema.field(at), pa.array(lists[name], pa.list_(pa.int64()))
        )
    return rows


def _exceptions(opened: OpenedStream, row: dict[str, Any]) -> Array | None:
    """The sequences between the ends of a range that it did not remove, shape (n, 2); None: unknown."""
    seqs = _seqs(opened, row["path"])
    if seqs is None:
        return None
    excepted = np.array([row[name] for name in _EXCEPTED], dtype=np.int64).T
    inside = (seqs >= row["first_seq"]) & (seqs <= row["last_seq"]) & ~in_ranges(seqs, excepted)
    taken = np.unique(seqs[inside])
    if len(taken) != row["messages"]:
        return None
    bounds = np.concatenate([[row["first_seq"] - 1], taken, [row["last_seq"] + 1]])
    gaps = np.diff(bounds) > 1
    return np.stack([bounds[:-1][gaps] + 1, bounds[1:][gaps] - 1], axis=1)


def _seqs(opened: OpenedStream, path: str) -> Array | None:
    """The sequences in a removed data file; None: it is gone, or cannot be read."""
    layout = opened.layout
    for directory in (layout.messages, layout.engine_path("trash")):
        file = layout.data_file((path, 0, 0), files.join(directory, data_path(path)))
        try:
            with files.open_input(file.location) as source:
                opened_file = pq.ParquetFile(source, page_checksum_verification=True)
                rows = opened_file.read(["seq"])
            return visible_rows(file, rows)["seq"].to_numpy()
        except (OSError, pa.ArrowException, DamagedError):
            continue
    return None


def _excepted_in(rows: pa.Table) -> Array:
    """The number of sequences of each range that are exceptions."""
    at = pc.list_parent_indices(rows["except_firsts"]).to_numpy()
    low, high = (pc.list_flatten(rows[name]).to_numpy() for name in _EXCEPTED)
    firsts, lasts = (rows[name].to_numpy()[at] for name in ("first_seq", "last_seq"))
    sums = np.zeros(rows.num_rows, dtype=np.int64)
    np.add.at(sums, at, np.maximum(np.minimum(high, lasts) - np.maximum(low, firsts) + 1, 0))
    return sums
