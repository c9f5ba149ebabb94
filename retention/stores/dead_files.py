"""Dead data files of a stream's table: their locations, and their times of death in its log."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from retention.core.reclaim import DeadFile
from retention.ports import Snapshot
from retention.storage import files
from retention.stores.layout import Layout


@dataclass(frozen=True)
class CommitTimes:
    """The trace of a run's commit in the log."""

    latest_ns: int
    """The latest of the entry's timestamps and of its modification time in storage; 0 if the entry was deleted."""
    is_of_run: bool = True
    """False if the log has another commit at its version, or none yet, as in a table restored from a copy."""


@dataclass(frozen=True)
class YoungEntries:
    """The log's entries since an instant."""

    paths: frozenset[str]
    """Every path in these entries."""
    is_whole: bool
    """Whether none of these entries is missing."""


class DeadFiles(Protocol):
    """The dead files of one table. Implementations: `stores.delta.dead_files`, `stores.parquet.dead_files`."""

    def kept_ns(self, snapshot: Snapshot) -> int:
        """The table's own retention of removed files, nanoseconds; 0 if the table sets none."""
        ...

    def commit_times(self, run: str, version: int | None, newest: int) -> CommitTimes:
        """The trace in the log of a run that committed a version, given the log's newest version.

        Raises:
            DamagedError: the entry cannot be read.
        """
        ...

    def young(self, cutoff_ns: int) -> YoungEntries:
        """The entries with a modification time in storage at an instant or later.

        Raises:
            DamagedError: one cannot be read.
        """
        ...

    def places(self, file: DeadFile) -> list[str]:
        """All possible locations of a dead file and of the files that describe it; the file itself first."""
        ...

    def settle(self) -> None:
        """Finish the file moves of commits.

        Raises:
            BusyError: another process is moving files and does not finish in time.
        """
        ...

    def at_rest(self, before: Snapshot) -> AbstractContextManager[pa.Table]:
        """Yield the newest version's live files (`path`), with every file at its logged location during the block.

        Args:
            before: a recent version; the newest one differs from it by a few entries.

        Raises:
            BusyError: another process moves files and does not finish in time.
        """
        ...

    def log_kept_ns(self, snapshot: Snapshot, grace_ns: int) -> int | None:
        """The retention of log entries under a grace, nanoseconds; None if they are kept forever."""
        ...


def companions(layout: Layout, file: DeadFile) -> list[str]:
    """The locations of a file's checksum, as Hadoop's local file system writes one, and of its subject digests."""
    directory, _, name = layout.live(file.path).rpartition("/")
    described = sorted(file.under_it) or [file.path]
    digests = [layout.engine_path("subjects", path) for path in described]
    return [files.join(directory, f".{name}.crc"), *digests]
