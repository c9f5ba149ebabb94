"""A writer of numbered messages into segments: cut, written, read back and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile, slot_of
from retention.datafile import parquet
from retention.datafile.deadline_writer import write_by_deadline
from retention.errors import VerificationError
from retention.layout.partition_tails import Ends, StreamEnds
from retention.ports import Store
from schemas.messages import FILE_COLUMNS

PARTITION = 0
"""Streams have one partition."""


class Staging:
    """The files that one attempt writes.

    Args:
        store: the stream's table.
        most_files: the most files among which a segment's messages may be divided by deadline.
    """

    def __init__(self, store: Store, most_files: int = 1) -> None:
        self._store = store
        self._most_files = most_files
        self._files: list[DataFile] = []

    def new(self, segment: int, partition: int = PARTITION) -> tuple[DataFile, ...]:
        """New files of `segment`, one or more of which are to be written."""
        files = (
            (self._store.stage(partition, segment),)
            if self._most_files == 1
            else self._store.stage_apart(partition, segment, self._most_files)
        )
        self._files.extend(files)
        return files

    def copy_of(self, source: DataFile) -> DataFile:
        """A new file that is to take the place of `source`."""
        file = self._store.stage_copy(source)
        self._files.append(file)
        return file

    def named(self, paths: Iterable[str]) -> list[DataFile]:
        """The files that attempts wrote under these paths, in the order in which their slots were handed out."""
        written = {slot_of(path): path for path in paths}
        slots = ((file, slot_of(file.path)) for file in self._files)
        return [file.named(written[slot]) for file, slot in slots if slot in written]

    def discard(self) -> None:
        """Delete the files, which no commit named."""
        self._store.discard([file.path for file in self._files])


@dataclass(frozen=True)
class Removal:
    """The removal by a commit that adds messages, recorded and undone as a run is."""

    run: str
    as_of_ns: int
    rule: str
    files: pa.Table
    """Files that are removed or replaced; shape `FILE_STATS`."""
    copies: Sequence[dict[str, Any]]
    """The files that replace them: rows of `FILE_STATS` as read back."""
    lost: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Path of a replaced file → the ranges of its sequences that are removed, shape (n, 2); other files go whole."""

    @property
    def messages(self) -> int:
        """The number of messages removed."""
        return self._lost("messages")

    @property
    def bytes(self) -> int:
        """The bytes removed, by the broker's accounting."""
        return self._lost("bytes")

    def _lost(self, name: str) -> int:
        before: int = pc.sum(self.files[name], min_count=0).as_py()
        return before - sum(row[name] for row in self.copies)


@dataclass(frozen=True)
class Staged:
    """Messages in files that a commit can add, and what it counts."""

    stats: Sequence[dict[str, Any]]
    """Rows of `FILE_STATS` as read back."""
    next_seq: Mapping[int, int]
    """Partition → the next sequence to assign after them."""
    open_base: Mapping[int, int]
    """Partition → the segment that is active after them."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """Name → number: counters of the commit beside the batch numbers of writers."""
    unstored: Mapping[int, int] = field(default_factory=dict)
    """Partition → the highest sequence that is given out and not stored, where there is one."""
    removal: Removal | None = None

    @classmethod
    def behind(cls, stats: Sequence[dict[str, Any]], ends: Ends) -> Self:
        """Messages in files, behind which partitions end as said."""
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
    """Give rows consecutive sequences from `first_seq` on, in their order; shape `FILE_COLUMNS`."""
    for batch in batches:
        seqs = pa.array(np.arange(first_seq, first_seq + batch.num_rows), pa.int64())
        first_seq += batch.num_rows
        yield batch.add_column(0, "seq", seqs).select(FILE_COLUMNS.names).cast(FILE_COLUMNS)


def stage_rows(staging: Staging, rows: Iterable[pa.Table], ends: StreamEnds) -> Staged:
    """Write rows of a stream, for each segment that they touch one file or some apart by deadline.

    Args:
        staging: the source of new files.
        rows: tables of shape `FILE_COLUMNS`, ascending by `seq`; one at a time is held.
        ends: where the stream ends; it is moved on behind them.

    Raises:
        VerificationError: a file does not hold what was written to it.
    """
    return Staged.behind(write_segments(staging, _pieces(rows, ends)), ends)


def write_segments(
    staging: Staging, pieces: Iterable[tuple[tuple[int, int], pa.Table]]
) -> list[dict[str, Any]]:
    """Write rows that have their places, and read the files back; rows of `FILE_STATS`.

    Args:
        staging: where files come from.
        pieces: partition and segment, and rows of shape `FILE_COLUMNS`, ascending by `seq`; neighbours of one segment
            go into one file, or some apart by deadline.

    Raises:
        VerificationError: a file does not hold what was written to it.
    """
    stats: list[dict[str, Any]] = []
    for (partition, base), inside in groupby(pieces, key=itemgetter(0)):
        tally = Tally()
        files = write_by_deadline(
            staging.new(base, partition), tally.counting(map(itemgetter(1), inside))
        )
        stats += verified_stats(files, tally.wrote)
    return stats


def verified_stats(files: Sequence[DataFile], wrote: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of `FILE_STATS` of staged files as read back, ascending by lowest sequence.

    Args:
        files: the files that some rows were divided among.
        wrote: `messages`, `bytes`, `min_seq` and `max_seq` of all these rows.

    Raises:
        VerificationError: the files do not hold what was to be written to them.
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


class Tally:
    """A count of the rows that pass on their way to files, which must hold them."""

    def __init__(self) -> None:
        self.wrote: dict[str, int] = {}
        """`messages`, `bytes`, `min_seq` and `max_seq`; nothing before the first rows."""

    def counting(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Rows of shape `FILE_COLUMNS` as they come, ascending by `seq`, none of them empty."""
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
    """Rows cut where segments begin, each piece with its place."""
    for table in rows:
        seqs, sizes, ts_ns = (table[name].to_numpy() for name in ("seq", "size", "ts_ns"))
        for piece in ends.roll(seqs, sizes, ts_ns):
            place = PARTITION, piece.active.base
            yield place, table.slice(piece.start, piece.end - piece.start)
