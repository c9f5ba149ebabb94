"""Plain Parquet files by hand: footers find the files to unlink, one file is rewritten, and a swap is durable."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.contenders.contender import Contender
from benchmarks.data import copy_data_files
from benchmarks.tasks import ALL_NAMES, COMPACT_NAMES, Task


@dataclass(frozen=True)
class Bounds:
    """A data file and the range of one of its columns."""

    file: Path
    lowest: int
    highest: int


class PlainFiles(Contender):
    """Completely removed files are unlinked; others are rewritten without the removed rows."""

    tasks = ALL_NAMES

    def place(self, source: Path, target: Path, task: Task) -> None:
        del task
        copy_data_files(source, target)

    def files(self, place: Path) -> list[Path]:
        return sorted(place.rglob("*.parquet"))

    def run(self, place: Path, task: Task) -> None:
        if task.name in COMPACT_NAMES:
            self._join(self.files(place), 1 if task.kind == "small" else 2)
        elif task.kind == "last":
            self._keep_last(bounds_of(self.files(place), "seq"))
        elif task.kind == "bytes":
            bounds = bounds_of(self.files(place), "seq")
            self._cut(bounds, "seq", self.last_to_go(bounds, task.limit))
        else:
            self._cut(bounds_of(self.files(place), task.column), task.column, task.limit)

    @abstractmethod
    def last_to_go(self, bounds: list[Bounds], limit: int) -> int:
        """The highest sequence beyond the newest `limit` bytes."""

    @abstractmethod
    def last_seqs(self, files: list[Path]) -> np.ndarray:
        """The highest sequence of each subject, ascending."""

    @abstractmethod
    def copy_above(self, file: Path, target: Path, column: str, limit: int) -> None:
        """Write the rows of `file` whose `column` is above `limit`."""

    @abstractmethod
    def copy_only(self, file: Path, target: Path, seqs: np.ndarray) -> None:
        """Write the rows of `file` with these sequences."""

    @abstractmethod
    def copy_all(self, files: list[Path], target: Path) -> None:
        """Write all rows of files, in order of sequence."""

    def _join(self, files: list[Path], above: int) -> None:
        """Merge the files below each directory a number of levels above them."""
        for _, group in groupby(files, key=lambda file: file.parents[above - 1]):
            old = list(group)
            self.copy_all(old, _staged(old[0]))
            swap(iter(old))

    def _cut(self, bounds: list[Bounds], column: str, limit: int) -> None:
        touched = [found for found in bounds if found.lowest <= limit]
        for found in touched:
            if found.highest > limit:
                self.copy_above(found.file, _staged(found.file), column, limit)
        swap(found.file for found in touched)

    def _keep_last(self, bounds: list[Bounds]) -> None:
        last = self.last_seqs([found.file for found in bounds])
        for found in bounds:
            start, end = np.searchsorted(last, [found.lowest, found.highest + 1])
            if end > start:
                self.copy_only(found.file, _staged(found.file), last[start:end])
        swap(found.file for found in bounds)


def bounds_of(files: list[Path], column: str) -> list[Bounds]:
    """The ranges of a column in files, from their footers, ascending."""
    found = []
    for file in files:
        metadata = pq.read_metadata(file)
        at = metadata.schema.to_arrow_schema().get_field_index(column)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        statistics = [group.column(at).statistics for group in groups]
        lowest = min(statistic.min for statistic in statistics)
        found.append(Bounds(file, lowest, max(statistic.max for statistic in statistics)))
    return sorted(found, key=lambda bounds: bounds.lowest)


def swap(files: Iterator[Path]) -> None:
    """Durably unlink files and rename their staging successors, if there are any."""
    for file in files:
        staged = _staged(file)
        if staged.exists():
            _sync(staged)
            staged.rename(file.with_name(f"new-{file.name}"))
        file.unlink()
        _sync(file.parent)


def _staged(file: Path) -> Path:
    return file.with_suffix(".staged")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
