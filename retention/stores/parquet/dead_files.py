"""Dead data files of a Parquet stream: removed files are in the trash, others in their staging directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from retention.core.reclaim import DeadFile, Reason, log_window
from retention.core.units import DAY
from retention.ports import Snapshot
from retention.stores.dead_files import CommitTimes, YoungEntries, companions
from retention.stores.layout import Layout
from retention.stores.parquet.log import ParquetLog
from retention.stores.parquet.settle_files import Places


@dataclass(frozen=True)
class ParquetDeadFiles:
    """Implements `DeadFiles`: removed files are in the trash, others in their staging directory."""

    layout: Layout

    def kept_ns(self, snapshot: Snapshot) -> int:
        """Always 0: only the configuration sets a grace."""
        return 0

    def commit_times(self, run: str, version: int | None, newest: int) -> CommitTimes:
        """The trace of a run's commit in the log."""
        if version is None:
            return CommitTimes(0)
        log = ParquetLog(self.layout)
        if not log.has(version - 1, version):
            return CommitTimes(0, is_of_run=version <= newest)
        entry = log.entry(version)
        return CommitTimes(
            max(entry.time_ms * 1_000_000, log.written_ns(version)), entry.run == run
        )

    def young(self, cutoff_ns: int) -> YoungEntries:
        """The young entries of the log."""
        log = ParquetLog(self.layout)
        window = log_window(*log.times(), cutoff_ns)
        paths: set[str] = set()
        for version in window.versions:
            entry = log.entry(version)
            paths.update(entry.remove)
            paths.update(row["path"] for row in entry.add)
        return YoungEntries(frozenset(paths), window.is_whole)

    def places(self, file: DeadFile) -> list[str]:
        """The locations of the file, in the trash or in staging, and of its subject digest."""
        kind = "trash" if file.reason is Reason.REMOVED else "staging"
        return [self.layout.engine_path(kind, file.path), *companions(self.layout, file)[1:]]

    def settle(self) -> None:
        """Finish the moves of all commits."""
        with Places(self.layout, ParquetLog(self.layout)).at_rest():
            pass

    @contextmanager
    def at_rest(self, before: Snapshot) -> Iterator[pa.Table]:
        """The live files, under the lock of moves, after all moves are finished."""
        del before
        with Places(self.layout, ParquetLog(self.layout)).at_rest() as state:
            yield state.files

    def log_kept_ns(self, snapshot: Snapshot, grace_ns: int) -> int | None:
        """The grace and one week more."""
        return grace_ns + 7 * DAY
