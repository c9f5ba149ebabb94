"""A writer of numbered messages into segments: splits, writes, reads back and compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile, slot_of
from retention.datafile import parquet
from retention.datafile.deadline_writer import write_by_deadline
from retention.errors import VerificationError
from retention.layout.partition_tails import Ends, StreamEnds
from retention.ports import StagingArea
from retention.schemas.files import FileStats
from retention.schemas.messages import FILE_COLUMNS

PARTITION = 0
"""Streams have one partition."""


class Staging:
    """The files that one attempt writes.

    Args:
        area: the source of new files.
        most_files: the maximum number of files to split a segment's messages among by deadline.
    """

    def __init__(self, area: StagingArea, most_files: int = 1) -> None:
        self._area = area
        self._most_files = most_files
        self._files: list[DataFile] = []

    def new(self, segment: int, partition: int = PARTITION) -> tuple[DataFile, ...]:
        """New files of `segment`; at least one of them will be written."""
        files = self._area.stage(partition, segment, self._most_files)
        self._files.extend(files)
        return files

    def named(self, paths: Iterable[str]) -> list[DataFile]:
        """The files that attempts wrote at these paths, in the order of staging."""
        written = {slot_of(path): path for path in paths}
        slots = ((file, slot_of(file.path)) for file in self._files)
        return [file.named(written[slot]) for file, slot in slots if slot in written]

    def take_over(self, other: Staging) -> None:
        """Take over the files of another one, which has none afterwards."""
        self._files += other._files
        other._files = []

    def discard(self) -> None:
        """Delete the uncommitted files."""
        if self._files:
            self._area.discard([file.path for file in self._files])


@dataclass(frozen=True)
class Staged:
    """Staged messages that a commit can add, with its counters."""

    stats: Sequence[FileStats]
    """Rows of `FILE_STATS` as read back."""
    next_seq: Mapping[int, int]
    """Partition → the next sequence to assign after them."""
    open_base: Mapping[int, int]
    """Partition → the active segment after them."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """Name → number: the commit's counters in addition to the batch numbers of writers."""
    unstored: Mapping[int, int] = field(default_factory=dict)
    """Partition → the highest assigned but unstored sequence, if there is one."""

    @classmethod
    def ending_at(cls, stats: Sequence[FileStats], ends: Ends) -> Self:
        """Messages in files, with the ends of partitions after them."""
        return cls(stats, ends.next_seq, ends.open_base, ends.batches)

    @property
    def messages(self) -> int:
        """The number of staged messages."""
        return sum(row["messages"] for row in self.stats)

    @property
    def bytes(self) -> int:
        """The bytes of the staged messages, by the broker's accounting."""
        return sum(row["bytes"] for row in self.stats)


def with_sequences(batches: Iterable[pa.Table], first_seq: int) -> Iterator[pa.Table]:
    """Assign rows consecutive sequences from `first_seq` on, in their order; shape `FILE_COLUMNS`."""
    for batch in batches:
        seqs = pa.array(np.arange(first_seq, first_seq + batch.num_rows), pa.int64())
        first_seq += batch.num_rows
        yield batch.add_column(0, "seq", seqs).select(FILE_COLUMNS.names).cast(FILE_COLUMNS)


def stage_rows(staging: Staging, rows: Iterable[pa.Table], ends: StreamEnds) -> Staged:
    """Write rows of a stream, to one file for each segment or to several split by deadline.

    Args:
        staging: the source of new files.
        rows: tables of shape `FILE_COLUMNS`, ascending by `seq`; one is in memory at a time.
        ends: the end of the stream; it advances past the rows.

    Raises:
        VerificationError: a file differs from the rows written to it.
    """
    return Staged.ending_at(write_segments(staging, _pieces(rows, ends)), ends)


def write_segments(
    staging: Staging, pieces: Iterable[tuple[tuple[int, int], pa.Table]]
) -> list[FileStats]:
    """Write rows with assigned segments, and read the files back; returns rows of `FILE_STATS`.

    Args:
        staging: the source of new files.
        pieces: partition and segment, and rows of shape `FILE_COLUMNS`, ascending by `seq`; adjacent pieces of one
            segment are written to one file, or to several split by deadline.

    Raises:
        VerificationError: a file differs from the rows written to it.
    """
    stats: list[FileStats] = []
    for (partition, base), inside in groupby(pieces, key=itemgetter(0)):
        tally = RowTally()
        files = write_by_deadline(
            staging.new(base, partition), tally.counting(map(itemgetter(1), inside))
        )
        stats += verified_stats(files, tally.wrote)
    return stats


def verified_stats(files: Sequence[DataFile], wrote: Mapping[str, int]) -> list[FileStats]:
    """Rows of `FILE_STATS` of staged files, as read back, ascending by lowest sequence.

    Args:
        files: the files that rows were split among.
        wrote: `messages`, `bytes`, `min_seq` and `max_seq` of all the rows.

    Raises:
        VerificationError: the files differ from the rows written to them.
    """
    stats = [parquet.describe(file).stats for file in files]
    actual = {
        "messages": sum(row["messages"] for row in stats),
        "bytes": sum(row["bytes"] for row in stats),
        "min_seq": min(row["min_seq"] for row in stats),
        "max_seq": max(row["max_seq"] for row in stats),
    }
    if actual != wrote:
        raise VerificationError(
            f"{files[0].location}: read back as {actual}, written as {wrote}; nothing was committed; check the disk "
            "and the memory of this machine, then try again"
        )
    return sorted(stats, key=lambda row: row["min_seq"])


class RowTally:
    """A count of the rows passed to files, to compare with the files."""

    def __init__(self) -> None:
        self.wrote: dict[str, int] = {}
        """`messages`, `bytes`, `min_seq` and `max_seq`; empty before the first rows."""

    def counting(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Pass through tables of shape `FILE_COLUMNS`, ascending by `seq` and not empty, and count their rows."""
        for rows in tables:
            before = self.wrote or {"messages": 0, "bytes": 0, "min_seq": rows["seq"][0].as_py()}
            self.wrote = before | {
                "messages": before["messages"] + rows.num_rows,
                "bytes": before["bytes"] + pc.sum(rows["size"]).as_py(),
                "max_seq": rows["seq"][-1].as_py(),
            }
            yield rows


def _pieces(
    rows: Iterable[pa.Table], ends: StreamEnds
) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """Rows cut at segment boundaries, each piece with its partition and segment."""
    for table in rows:
        seqs, sizes, ts_ns = (table[name].to_numpy() for name in ("seq", "size", "ts_ns"))
        for piece in ends.roll(seqs, sizes, ts_ns):
            place = PARTITION, piece.active.base
            yield place, table.slice(piece.start, piece.end - piece.start)
