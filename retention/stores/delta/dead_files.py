"""Dead data files of a Delta table: they remain at their live locations until VACUUM or a reclaim deletes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.reclaim import DeadFile, log_window
from retention.errors import DamagedError
from retention.ports import Snapshot, Store, VersionToken
from retention.storage import files
from retention.stores.dead_files import CommitTimes, YoungEntries, companions
from retention.stores.delta import internals, properties
from retention.stores.delta import log as delta_history
from retention.stores.delta.log_diff import Changes, changes
from retention.stores.layout import Layout


@dataclass(frozen=True)
class DeltaDeadFiles:
    """Implements `DeadFiles`: files remain at their live locations."""

    layout: Layout
    store: Store

    def kept_ns(self, snapshot: Snapshot) -> int:
        """The table's `delta.deletedFileRetentionDuration`, which VACUUM follows."""
        return properties.kept_ns(snapshot.handle.table)

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
        """The locations of the file, its Hadoop checksum and its subject digests."""
        return [self.layout.live(file.path), *companions(self.layout, file)]

    def settle(self) -> None:
        """Do nothing: commits to a Delta table move no files."""

    @contextmanager
    def at_rest(self, before: Snapshot) -> Iterator[pa.Table]:
        """The live files of the newest version; nothing moves in a Delta table.

        Opening the table costs time in proportion to its files, so only the entries since `before` are read if they
        suffice.
        """
        now = delta_history.newest_version_token(self.layout)
        since = None
        if now is not None and before.seal is not None:
            since = changes(self.layout, VersionToken(before.version, before.seal), now)
        yield self.store.snapshot().files if since is None else _followed(before.files, since)

    def log_kept_ns(self, snapshot: Snapshot, grace_ns: int) -> int | None:
        """The table's `delta.logRetentionDuration`; None also if it is shorter than the grace."""
        kept_ns = properties.log_kept_ns(snapshot.handle.table)
        return None if kept_ns is None or kept_ns < grace_ns else kept_ns


def _followed(live: pa.Table, since: Changes) -> pa.Table:
    """The paths of live files after changes."""
    gone = pc.is_in(live["path"], value_set=pa.array(list(since.removed), pa.string()))
    left = live.select(["path"]).filter(pc.invert(gone))
    return pa.concat_tables([left, since.logged.select(["path"]).cast(left.schema)])


def _unreadable(place: str, stream: str, error: Exception) -> DamagedError:
    return DamagedError(
        f"{place}: this entry of the log of stream {stream} cannot be read ({error!r}); nothing was deleted; restore "
        "it from a copy"
    )
