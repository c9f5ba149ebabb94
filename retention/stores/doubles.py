"""Whether a sequence stands twice in a segment whose files overlap: asked of the rows, once per set of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from retention import files, parquet_files
from retention.errors import ForeignRowsError
from retention.segments import DataFile, ReadCount
from retention.steps import Step, reached
from retention.stores.layout import Layout


def refuse_doubles(
    layout: Layout, overlapping: pa.Table, locate: Callable[[pa.Table], list[DataFile]]
) -> ReadCount:
    """Read the sequences of overlapping files, one segment after another.

    Args:
        layout: the stream's places; sets of files found clean are remembered there.
        overlapping: shape `FILE_STATS`, sorted: all files of the segments in question.
        locate: where the files can be opened now.

    Raises:
        ForeignRowsError: a sequence stands in two files.
    """
    return sum(
        (_refuse_in(layout, segment, locate) for segment in unchecked(layout, overlapping)),
        ReadCount(),
    )


def unchecked(layout: Layout, overlapping: pa.Table) -> list[pa.Table]:
    """The segments of `overlapping` whose files were not found clean before, each as one table."""
    if not overlapping.num_rows:
        return []
    keys = np.stack([overlapping[name].to_numpy() for name in ("partition", "segment")])
    starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    ends = [*starts[1:], overlapping.num_rows]
    segments = [overlapping.slice(at, end - at) for at, end in zip(starts, ends, strict=True)]
    return [segment for segment in segments if files.length(_clean(layout, segment)) is None]


def _refuse_in(
    layout: Layout, segment: pa.Table, locate: Callable[[pa.Table], list[DataFile]]
) -> ReadCount:
    read = ReadCount()
    sequences = []
    found = locate(segment)
    for file in found:
        rows, cost = parquet_files.read_columns(file, ["seq"])
        sequences.append(rows["seq"].to_numpy())
        read += cost
    every = np.sort(np.concatenate(sequences))
    twice = np.flatnonzero(every[1:] == every[:-1])
    if len(twice):
        named = [
            file.path
            for file, own in zip(found, sequences, strict=True)
            if np.isin(every[twice[0]], own)
        ]
        raise ForeignRowsError(
            f"stream {layout.stream}: sequence {every[twice[0]]} stands twice, in {' and '.join(named)} "
            f"({len(twice)} such sequences in segment {found[0].segment}); the table is corrupt, nothing "
            "was changed; remove the file that is wrong from the table"
        )
    with files.if_writable():
        files.replace(_clean(layout, segment), b"")
    reached(Step.FOUND_DISJOINT)
    return read


def _clean(layout: Layout, segment: pa.Table) -> str:
    """The file that remembers that these files share no sequence."""
    columns = ("path", "file_bytes", "modified_ms")
    rows = zip(*(segment[name].to_pylist() for name in columns), strict=True)
    return layout.own("disjoint", hashlib.sha256(repr(sorted(rows)).encode()).hexdigest())
