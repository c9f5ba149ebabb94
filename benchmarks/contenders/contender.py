"""The interface of a contender: place a copy of the table, do the work, and locate the survivors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from benchmarks.data import copy_as_flat_table, copy_warehouse, messages_of, survivors
from benchmarks.tasks import NAMES, TTL_NAMES, Task

ROW_GROUP_ROWS = 131_072
ZSTD_LEVEL = 1
"""Codec and level of the source files."""


class Contender(ABC):
    """One way to do the work; only `run` is timed."""

    tasks: tuple[str, ...] = (*NAMES, *TTL_NAMES)
    """The pieces of work with an implementation of its own."""

    def open(self) -> None:  # noqa: B027  (most contenders have nothing to open)
        """Start what stays warm between runs."""

    def close(self) -> None:  # noqa: B027  (most contenders have nothing to close)
        """Stop what `open` started."""

    def place(self, source: Path, target: Path, task: Task) -> None:
        """Put a fresh copy of the warehouse `source`, or of the needed parts, at `target`."""
        del task
        copy_warehouse(source, target)

    @abstractmethod
    def run(self, place: Path, task: Task) -> None:
        """Do the work."""

    @abstractmethod
    def files(self, place: Path) -> list[Path]:
        """The live data files after the work."""

    def survivors(self, place: Path) -> tuple[int, int]:
        """The number of messages after the work, and the sum of their sequences."""
        return survivors(self.files(place))


class DeltaContender(Contender):
    """A contender on the unchanged Delta table."""

    def place(self, source: Path, target: Path, task: Task) -> None:
        """Put a copy of the warehouse there; for `hollow` an unpartitioned table, because others have no segments."""
        if task.kind == "hollow":
            copy_as_flat_table(source, messages_of(target))
        else:
            super().place(source, target, task)

    def files(self, place: Path) -> list[Path]:
        from deltalake import DeltaTable

        return [Path(unquote(uri)) for uri in DeltaTable(messages_of(place)).file_uris()]


def first_to_keep(seqs: np.ndarray, sizes: np.ndarray, limit: int) -> int:
    """The first sequence of the longest tail whose sizes add up to at most `limit`; `seqs` ascending."""
    tails = np.cumsum(sizes[::-1])
    return int(seqs[len(seqs) - int(np.searchsorted(tails, limit, side="right"))])
