"""Duplicate sequences in segments with overlapping files: looked for in the rows, once per set of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile
from retention.core.read_count import ReadCount
from retention.core.spoken_commands import command
from retention.datafile import parquet
from retention.errors import ForeignRowsError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.file_paths import siblings_of
from retention.stores.layout import Layout

_NOTES = "disjoint"


def refuse_duplicates(
    layout: Layout, overlapping: pa.Table, locate: Callable[[pa.Table], list[DataFile]]
) -> ReadCount:
    """Refuse a sequence that occurs twice; reads overlapping files one segment at a time.

    Args:
        layout: the stream's layout; sets of files without duplicates are noted in its engine directory.
        overlapping: shape `FILE_STATS`, sorted: all files of the segments in question.
        locate: gives files at their current locations.

    Raises:
        ForeignRowsError: two files contain one sequence.
    """
    return sum(
        (_refuse_in(layout, segment, locate) for segment in unchecked(layout, overlapping)),
        ReadCount(),
    )


def unchecked(layout: Layout, overlapping: pa.Table) -> list[pa.Table]:
    """The segments of `overlapping` that must be read, each as one table.

    Files that one writer split by deadline need no read, nor do sets of files that an earlier read found clean.
    """
    return [
        segment
        for segment in segments_to_read(overlapping)
        if files.length(_clean(layout, segment)) is None
    ]


def spent_notes(layout: Layout, overlapping: pa.Table) -> list[str]:
    """Locations of notes on sets of files that no longer exist unchanged, sorted.

    Args:
        layout: the stream's places.
        overlapping: as for `unchecked`.
    """
    kept = {_clean(layout, segment) for segment in segments_to_read(overlapping)}
    return [place for place in notes(layout) if place not in kept]


def notes(layout: Layout) -> list[str]:
    """Locations of all notes on sets of files without duplicates, sorted."""
    directory = layout.engine_path(_NOTES)
    return [files.join(directory, name) for name in files.names(directory)]


def segments_to_read(overlapping: pa.Table) -> list[pa.Table]:
    """The segments of `overlapping` that only rows can clear of duplicates."""
    if overlapping.num_rows:
        overlapping = _of_strangers(overlapping)
    if not overlapping.num_rows:
        return []
    keys = np.stack([overlapping[name].to_numpy() for name in ("partition", "segment")])
    starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    ends = [*starts[1:], overlapping.num_rows]
    return [overlapping.slice(at, end - at) for at, end in zip(starts, ends, strict=True)]


def _of_strangers(overlapping: pa.Table) -> pa.Table:
    """The files of segments in which ranges of independently written files meet.

    Files written together (one kin) count as one range; they share no sequence unless they have more messages than
    the range has sequences:
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
    # No sequence reaches into the next segment, so the running maximum needs no reset there.
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
    """The location of the note that the files of a segment share no sequence."""
    columns = ("path", "file_bytes", "modified_ms")
    rows = zip(*(segment[name].to_pylist() for name in columns), strict=True)
    return layout.engine_path(_NOTES, hashlib.sha256(repr(sorted(rows)).encode()).hexdigest())
