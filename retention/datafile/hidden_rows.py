"""Rows of a data file that a deletion vector hides: read as sequences, and written for rows that are removed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from retention.core.inventory import DataFile
from retention.core.read_count import ReadCount
from retention.core.seq_ranges import in_ranges
from retention.core.vector_paths import VectorPlace, data_path, vector_place
from retention.datafile.footers import compressed_bytes
from retention.datafile.parquet import describe, open_messages, unreadable_error
from retention.datafile.rewrite import RewriteResult, RewriteTask, copy_remaining
from retention.datafile.subject_digest import digest_at
from retention.delta.vectors import read_stored, write_stored
from retention.errors import DamagedError
from retention.schemas.messages import RULE_COLUMNS
from retention.storage import files
from retention.storage.crash_points import Step, reached

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True)
class HiddenRows:
    """Implements `SeqRanges`: the sequences of the rows that a vector hides, read when they are first asked for."""

    file: DataFile
    """The data file, with all its rows."""
    location: str
    """The location of the file with the vector."""
    offset: int
    seqs: np.ndarray | None = field(default=None, compare=False, repr=False)
    """The sequences of the file's rows, in its order, if they are in memory."""

    def read(self) -> np.ndarray:
        """Ranges of the hidden sequences, one for each run of consecutive ones; shape (n, 2).

        Raises:
            DamagedError: the vector or the data file cannot be read, or the vector hides rows that the file lacks.
        """
        return self._ranges

    @cached_property
    def _ranges(self) -> np.ndarray:
        dead = read_stored(self.location, self.offset)
        stored = _seqs(self.file, open_messages(self.file)) if self.seqs is None else self.seqs
        if dead and dead.max() >= len(stored):
            raise DamagedError(
                f"{self.location}: the deletion vector at offset {self.offset} hides row {dead.max():,} of "
                f"{self.file.location}, which has {len(stored):,}; nothing was changed; restore that file from a copy"
            )
        seqs = np.sort(stored[np.fromiter(dead, np.int64, len(dead))])
        starts = np.append(True, np.diff(seqs) > 1)[: len(seqs)]
        ends = np.append(starts[1:], True)[: len(seqs)]
        return np.stack([seqs[starts], seqs[ends]], axis=1)


def hiding_rows(file: DataFile, seqs: np.ndarray | None = None) -> DataFile:
    """The file with the rows hidden that its vector hides; unchanged if its path names no vector.

    Args:
        file: the file.
        seqs: the sequences of all its rows, in its order, if they are in memory.
    """
    place = vector_place(file.path)
    if place is None:
        return file
    hidden = HiddenRows(_whole(file), _location(file, place), place.offset, seqs)
    return replace(file, hidden=hidden)


def rewrite_or_hide(task: RewriteTask) -> RewriteResult:
    """Write a vector if the task's target is its source under one, else a copy of the remaining rows.

    Raises:
        DamagedError: the source cannot be read to its end.
    """
    [target, *others] = task.targets
    place = vector_place(target.path)
    return copy_remaining(task) if others or place is None else _hide(task, target, place)


def _hide(task: RewriteTask, target: DataFile, place: VectorPlace) -> RewriteResult:
    """Write the vector of a file that loses rows, then read it back and describe the rows that it leaves."""
    opened = open_messages(_whole(target))
    seqs = _seqs(_whole(target), opened)
    dead = np.flatnonzero(in_ranges(seqs, task.with_ranges().gone))
    write_stored(_location(target, place), BitMap64(dead))
    recorded = digest_at(task.source.digest_location).load()
    sha256 = None if recorded is None else recorded.sha256
    described = describe(replace(hiding_rows(target, seqs), sha256=sha256))
    reached(Step.ROWS_HIDDEN)
    cost = compressed_bytes(opened, ["seq"]) + compressed_bytes(opened, RULE_COLUMNS)
    return RewriteResult([described.stats], ReadCount(1, cost))


def _whole(file: DataFile) -> DataFile:
    """The data file of a file under a vector."""
    return DataFile(
        data_path(file.path), file.partition, file.segment, file.location, "", stream=file.stream
    )


def _location(file: DataFile, place: VectorPlace) -> str:
    return files.join(file.location.removesuffix(data_path(file.path)).rstrip("/"), place.path)


def _seqs(file: DataFile, opened: pq.ParquetFile) -> np.ndarray:
    """The sequences of a file's rows, in the order of the file."""
    try:
        return opened.read(columns=["seq"])["seq"].to_numpy()
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error
