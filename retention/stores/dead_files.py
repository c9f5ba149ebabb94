"""Dead data files of a stream's table: their locations, and their times of death in its log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.reclaim import DeadFile, Reason, log_window
from retention.core.units import DAY
from retention.errors import DamagedError
from retention.ports import Snapshot, Store, VersionToken
from retention.storage import files
from retention.stores.delta import internals
from retention.stores.delta import log as delta_history
from retention.stores.delta.log_diff import Changes, changes
from retention.stores.layout import Layout
from retention.stores.parquet.log import ParquetLog
from retention.stores.parquet.settle_files import Places


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
    """The dead files of one table. Implementations: `DeltaDeadFiles`, `ParquetDeadFiles`."""

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


def dead_files_of(layout: Layout, format_: str, store: Store) -> DeadFiles:
    """The dead files of a stream's table."""
    return DeltaDeadFiles(layout, store) if format_ == "delta" else ParquetDeadFiles(layout)


@dataclass(frozen=True)
class DeltaDeadFiles:
    """Implements `DeadFiles`: files remain at their live locations."""

    layout: Layout
    store: Store

    def kept_ns(self, snapshot: Snapshot) -> int:
        """The table's `delta.deletedFileRetentionDuration`, which VACUUM follows."""
        # Load deltalake only if there is a Delta table.
        from retention.stores.delta.properties import kept_ns

        return kept_ns(snapshot.handle.table)

    def commit_times(self, run: str, version: int | None, newest: int) -> CommitTimes:
        """The trace of a run's commit in the Delta log."""
        if version is None:
            return CommitTimes(0)
        place = delta_history.place_of(self.layout, version)
        entry = delta_history.read_entry(self.layout, version)
        if entry is None:
            return CommitTimes(0, is_of_run=version <= newest)
        try:
            is_of_run = delta_history.run_of(entry) == run
            stamps = [
                fields.get("deletionTimestamp") or 0
                for kind, fields in internals.file_actions(entry)
                if kind == "remove"
            ]
            stamps.append(internals.commit_info(entry).get("timestamp") or 0)
            latest_ms = max([*map(int, stamps), files.stat(place)[1]])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(place, self.layout.stream, error) from error
        except FileNotFoundError:
            return CommitTimes(0, is_of_run=version <= newest)
        return CommitTimes(latest_ms * 1_000_000, is_of_run)

    def young(self, cutoff_ns: int) -> YoungEntries:
        """The young entries of the Delta log."""
        window = log_window(*internals.log_times(self.layout.messages), cutoff_ns)
        paths: set[str] = set()
        entries = delta_history.read_entries(self.layout, window.versions)
        is_whole = window.is_whole
        for version, entry in zip(window.versions, entries, strict=True):
            is_whole = is_whole and entry is not None
            try:
                paths |= internals.paths_in(entry or b"")
            except ValueError as error:
                place = delta_history.place_of(self.layout, version)
                raise _unreadable(place, self.layout.stream, error) from error
        return YoungEntries(frozenset(paths), is_whole)

    def places(self, file: DeadFile) -> list[str]:
        """The locations of the file, its Hadoop checksum and its subject digest."""
        return [self.layout.live(file.path), *_beside(self.layout, file.path)]

    def settle(self) -> None:
        """Do nothing: commits to a Delta table move no files."""

    @contextmanager
    def at_rest(self, before: Snapshot) -> Iterator[pa.Table]:
        """The live files of the newest version; nothing moves in a Delta table.

        Opening the table costs time in proportion to its files, so only the entries since `before` are read if they
        suffice.
        """
        now = delta_history.newest_mark(self.layout)
        since = None
        if now is not None and before.seal is not None:
            since = changes(self.layout, VersionToken(before.version, before.seal), now)
        yield self.store.snapshot().files if since is None else _followed(before.files, since)

    def log_kept_ns(self, snapshot: Snapshot, grace_ns: int) -> int | None:
        """The table's `delta.logRetentionDuration`; None also if it is shorter than the grace."""
        from retention.stores.delta.properties import log_kept_ns

        kept_ns = log_kept_ns(snapshot.handle.table)
        return None if kept_ns is None or kept_ns < grace_ns else kept_ns


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
        return [self.layout.engine_path(kind, file.path), *_beside(self.layout, file.path)[1:]]

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


def _followed(live: pa.Table, since: Changes) -> pa.Table:
    """The paths of live files after changes."""
    gone = pc.is_in(live["path"], value_set=pa.array(list(since.removed), pa.string()))
    left = live.select(["path"]).filter(pc.invert(gone))
    return pa.concat_tables([left, since.logged.select(["path"]).cast(left.schema)])


def _beside(layout: Layout, path: str) -> list[str]:
    """The locations of a file's checksum, as Hadoop's local file system writes one, and of its subject digest."""
    directory, _, name = layout.live(path).rpartition("/")
    return [files.join(directory, f".{name}.crc"), layout.engine_path("subjects", path)]


def _unreadable(place: str, stream: str, error: Exception) -> DamagedError:
    return DamagedError(
        f"{place}: this entry of the log of stream {stream} cannot be read ({error!r}); nothing was deleted; restore "
        "it from a copy"
    )
