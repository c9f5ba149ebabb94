"""Whether a sequence stands twice in a segment whose files overlap: answered by the rows, once per set of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile, ReadCount
from retention.core.spoken_commands import command
from retention.datafile import parquet
from retention.errors import ForeignRowsError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout, siblings_of

_NOTES = "disjoint"


def refuse_duplicates(
    layout: Layout, overlapping: pa.Table, locate: Callable[[pa.Table], list[DataFile]]
) -> ReadCount:
    """Refuse a sequence that stands twice, reading overlapping files one segment after another.

    Args:
        layout: the stream's places; sets of files found clean are remembered there.
        overlapping: shape `FILE_STATS`, sorted: all files of the segments in question.
        locate: gives files at the places where they can be opened now.

    Raises:
        ForeignRowsError: a sequence stands in two files.
    """
    return sum(
        (_refuse_in(layout, segment, locate) for segment in unchecked(layout, overlapping)),
        ReadCount(),
    )


def unchecked(layout: Layout, overlapping: pa.Table) -> list[pa.Table]:
    """The segments of `overlapping` whose files must be looked into, each as one table.

    Files that were written together, apart by deadline, need not be, nor sets of files that were found clean before.
    """
    return [
        segment
        for segment in _segments(overlapping)
        if files.length(_clean(layout, segment)) is None
    ]


def spent_notes(layout: Layout, overlapping: pa.Table) -> list[str]:
    """Locations of what remembers sets of files of which one is gone, or that came to be another, sorted.

    Args:
        layout: the stream's places.
        overlapping: as for `unchecked`.
    """
    kept = {_clean(layout, segment) for segment in _segments(overlapping)}
    return [place for place in notes(layout) if place not in kept]


def notes(layout: Layout) -> list[str]:
    """Locations of all that remembers sets of files that were found clean, sorted."""
    directory = layout.engine_path(_NOTES)
    return [files.join(directory, name) for name in files.names(directory)]


def _segments(overlapping: pa.Table) -> list[pa.Table]:
    """The segments of `overlapping` of which only rows can tell whether a sequence is there twice."""
    if overlapping.num_rows:
        overlapping = _of_strangers(overlapping)
    if not overlapping.num_rows:
        return []
    keys = np.stack([overlapping[name].to_numpy() for name in ("partition", "segment")])
    starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    ends = [*starts[1:], overlapping.num_rows]
    return [overlapping.slice(at, end - at) for at, end in zip(starts, ends, strict=True)]


def _of_strangers(overlapping: pa.Table) -> pa.Table:
    """The files of segments in which ranges meet that do not belong to files written together.

    Files written together (one kin) count as one range, and share no sequence unless they have more messages than it:
        kin a 1 to 6, 6 messages; kin b 7 to 9, 3 messages   left out
        kin a 1 to 6, 6 messages; kin b 5 to 9, 5 messages   kept: 5 is not above 6
        kin a 1 to 6, 7 messages                             kept: 7 messages among 6 sequences
    """
    kin = pc.fill_null(siblings_of(overlapping["path"]), overlapping["path"])
    families = (
        overlapping.append_column("kin", kin)
        .group_by(["partition", "segment", "kin"])
        .aggregate([("min_seq", "min"), ("max_seq", "max"), ("messages", "sum")])
        .sort_by([(name, "ascending") for name in ("partition", "segment", "min_seq_min")])
    )
    partition, segment, low, high, messages = (
        families[name].to_numpy()
        for name in ("partition", "segment", "min_seq_min", "max_seq_max", "messages_sum")
    )
    # No sequence reaches into the next segment: there the running maximum begins anew by itself.
    reach = np.maximum.accumulate(high)
    same_partition = partition[1:] == partition[:-1]
    strange = messages > high - low + 1
    strange[1:] |= same_partition & (low[1:] <= reach[:-1])
    doubtful = pa.array(np.unique(segment[strange]), pa.int64())
    return overlapping.filter(pc.is_in(overlapping["segment"], value_set=doubtful))


def _refuse_in(
    layout: Layout, segment: pa.Table, locate: Callable[[pa.Table], list[DataFile]]
) -> ReadCount:
    read = ReadCount()
    sequences = []
    data_files = locate(segment)
    for file in data_files:
        rows, cost = parquet.read_columns(file, ["seq"])
        sequences.append(rows["seq"].to_numpy())
        read += cost
    every = np.sort(np.concatenate(sequences))
    twice = np.flatnonzero(every[1:] == every[:-1])
    if len(twice):
        named = [
            file.path
            for file, seqs in zip(data_files, sequences, strict=True)
            if np.isin(every[twice[0]], seqs)
        ]
        repairs = ", or ".join(
            command("repair lost", layout.stream, path, options="--yes") for path in named
        )
        raise ForeignRowsError(
            f"stream {layout.stream}: sequence {every[twice[0]]} stands twice, in {' and '.join(named)} "
            f"({len(twice)} such sequences in segment {data_files[0].segment}); the table is corrupt, nothing "
            f"was changed; take the one that is wrong out of the table: {repairs}"
        )
    with files.if_writable():
        files.replace(_clean(layout, segment), b"")
    reached(Step.FOUND_DISJOINT)
    return read


def _clean(layout: Layout, segment: pa.Table) -> str:
    """The file that remembers that the files of a segment share no sequence."""
    columns = ("path", "file_bytes", "modified_ms")
    rows = zip(*(segment[name].to_pylist() for name in columns), strict=True)
    return layout.engine_path(_NOTES, hashlib.sha256(repr(sorted(rows)).encode()).hexdigest())
