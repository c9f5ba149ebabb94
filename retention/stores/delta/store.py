"""A stream as a Delta table: file actions committed as entries of our own, without a JVM."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counters import Counters
from retention.core.inventory import Inventory
from retention.core.vector_paths import data_path
from retention.delta import vectors
from retention.engine_port import Run, run_here
from retention.errors import (
    BusyError,
    ConflictError,
    LostCommitError,
    RetentionError,
    StalePlanError,
)
from retention.ports import (
    IncrementalInventory,
    LostCommit,
    Returned,
    Snapshot,
    Swap,
    TableHead,
    VersionToken,
)
from retention.schemas.empty import empty_table
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage import files
from retention.storage.errors import first_line
from retention.storage.signals import uninterrupted
from retention.stores.delta import commit_tokens
from retention.stores.delta import log as delta_history
from retention.stores.delta.table_log import FixedPlaces, log_of
from retention.stores.file_store import FileStore, begin_again, table_id_of
from retention.stores.layout import Layout, StoreSettings
from retention.stores.row_tombstones import has_records
from retention.stores.sidecar.stats_cache import StatisticsCache

if TYPE_CHECKING:
    from retention.stores.delta.checkpointing import Checkpointing
    from retention.stores.delta.commit import CommitAttempt
    from retention.stores.delta.incremental import DeltaIncrementalInventory
    from retention.stores.delta.table import DeltaHandle, OpenedBefore

ATTEMPTS = 20
MOST_KEPT_FILES = 100_000
"""The files of a table up to which its version stays in memory, so that the next opening reads later entries alone."""
_LONGEST_PAUSE_S = 0.4
_log = logging.getLogger(__name__)


class DeltaStore(FileStore):
    """Implements `retention.ports.TableStore`."""

    def __init__(self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]) -> None:
        super().__init__(layout, settings, clock, log_of(layout, settings), FixedPlaces(layout))
        self._cache = StatisticsCache(layout, clock)
        self._grace_differs = False
        self._before: OpenedBefore | None = None

    @cached_property
    def _ahead(self) -> DeltaIncrementalInventory:
        from retention.stores.delta.incremental import DeltaIncrementalInventory

        return DeltaIncrementalInventory(self._layout, self._cache, self.data_files, self._clock)

    @cached_property
    def _checkpointing(self) -> Checkpointing:
        from retention.stores.delta.checkpointing import Checkpointing

        return Checkpointing(self._layout)

    def incremental_inventory(self, token: VersionToken) -> IncrementalInventory | None:
        """The inventory cache, updated from later log entries; None if the table must be opened."""
        # Opening the table refuses row tombstones of earlier builds.
        return None if has_records(self._layout) else self._ahead.at(token)

    def cache_inventory(self, inventory: Inventory, token: VersionToken) -> None:
        """Rebuild the inventory cache, unless the table's properties differ from the configuration."""
        if not self._grace_differs:
            self._ahead.keep(inventory, token)

    def create(self) -> None:
        """Create the empty table, also in place of a dropped one; do nothing if it exists."""
        if self._create():
            begin_again(self)

    def snapshot(self) -> Snapshot:
        """Open the table once."""
        from retention.stores.delta.returned import refuse_returned

        commit_tokens.refuse_lost(self._layout)
        snapshot = self._opened()
        refuse_returned(self._layout, snapshot.version)
        return snapshot

    def resurrected_files(self) -> tuple[Snapshot, tuple[Returned, ...]]:
        """Open the table to repair it, and list the commits of other writers that resurrected files."""
        from retention.stores.delta.returned import find_returned

        snapshot = self._opened()
        return snapshot, tuple(find_returned(self._layout, snapshot.version))

    def lost_commits(self) -> tuple[Snapshot, tuple[LostCommit, ...]]:
        """Open the table to repair it, and list the commits that other programs overwrote."""
        from retention.stores.delta.lost_commits import lost_commit
        from retention.stores.delta.returned import refuse_returned

        snapshot = self._opened()
        refuse_returned(self._layout, snapshot.version)
        epoch, now_ns = self.logged_counters(snapshot).epoch, self._clock()
        lost = commit_tokens.lost_entries(self._layout)
        described = (lost_commit(self._layout, self._cache, entry, epoch, now_ns) for entry in lost)
        return snapshot, tuple(described)

    def _opened(self) -> Snapshot:
        from retention.stores.checks import inventory as index
        from retention.stores.delta import properties

        with self._opening():
            handle, live = self._read()
        grace_ns = self._settings.grace_ns
        self._grace_differs = properties.pending(self._layout, handle.table, grace_ns)
        self._follow(handle.logged, live)
        return Snapshot(
            handle.table.version,
            table_id_of(handle.table_id, handle.logged),
            live,
            index.effective(handle.logged, live),
            handle,
            follows=not self._grace_differs,
            seal=None if handle.token is None else handle.token.seal,
        )

    def _read(self) -> tuple[DeltaHandle, pa.Table]:
        """The newest version of the table, from the version that was opened before and the entries after it."""
        from retention.stores.delta import table as delta_table

        before = self._before or delta_table.OpenedBefore()
        handle, live = delta_table.read_handle(self._layout, before)
        if before.table is not None and self._newest() != handle.table.version:
            # An entry is missing, or came meanwhile.
            handle, live = delta_table.read_handle(self._layout)
        is_kept = live.num_rows <= MOST_KEPT_FILES and not files.is_remote(self._layout.root)
        self._before = replace(before, table=handle.table) if is_kept else None
        return handle, live

    def _newest(self) -> int | None:
        entries, _ = delta_history.versions(self._layout)
        return entries[-1] if entries else None

    def inventory(self, snapshot: Snapshot, run: Run = run_here) -> Inventory:
        """Add full statistics to the snapshot's files, from the cache first."""
        from retention.stores.checks import duplicates, number_bounds
        from retention.stores.checks import inventory as index
        from retention.stores.delta.commit import refuse_vectors
        from retention.stores.describing import describe_missing

        refuse_vectors(self._layout, snapshot.handle, snapshot.files)
        index.refuse_nulls(self._layout, snapshot.files)
        number_bounds.refuse_impossible(self._layout, snapshot.files)
        known, missing = self._cache.match(snapshot.files)
        described, read = describe_missing(self._layout, self._cache, missing, run, self._clock())
        table = pa.concat_tables([known, described]) if described.num_rows else known
        table = index.in_order(table)
        number_bounds.refuse_impossible(self._layout, table)
        number_bounds.refuse_counters(self._layout, snapshot.counters)
        self._cache.tidy(lambda: table)
        overlapping = index.refuse_overlaps(self.stream, table)
        read += duplicates.refuse_duplicates(self._layout, overlapping, self.data_files)
        counters = snapshot.counters
        if missing.num_rows or snapshot.files["max_seq"].null_count:
            # Of other files, the log and the cache say the same.
            counters = index.effective(counters, table)
        return Inventory(self.stream, snapshot.table_id, snapshot.version, table, counters, read)

    def partition_valid_files(self, snapshot: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Statistics of the files with possible numbers, and the files with impossible ones."""
        from retention.stores.delta.valid_files import partition_valid

        return partition_valid(self._layout, self._cache, snapshot, self.data_files)

    def hidden_rows(self, snapshot: Snapshot) -> Mapping[str, int]:
        """The cardinality of the vector of each file that has one."""
        handle: DeltaHandle = snapshot.handle
        return {path: vector["cardinality"] for path, vector in handle.vectors.items()}

    def takes_vector(self, snapshot: Snapshot, row: Mapping[str, Any]) -> bool:
        """Whether the table has vectors, every reader will see one of this file, and most of its rows stay."""
        handle: DeltaHandle = snapshot.handle
        path = row["path"]
        hidden = self.hidden_rows(snapshot).get(path, 0)
        return (
            handle.rules.gives_vectors
            and not vectors.needs_rewrite(data_path(path))
            and vectors.is_worth(row["messages"] + hidden, row["removed_messages"] + hidden)
        )

    def logged_counters(self, snapshot: Snapshot) -> Counters:
        """The counters in the log, without the values that files prove."""
        handle: DeltaHandle = snapshot.handle
        return handle.logged

    def last_counted(self, snapshot: Snapshot) -> Mapping[int, int]:
        """Partition → the highest next sequence within bounds in the remaining log entries."""
        from retention.stores.delta import counters as delta_transactions

        epoch = self.logged_counters(snapshot).epoch
        return delta_transactions.last_counted(self._layout, snapshot.version, epoch)

    def count_undescribed(self, snapshot: Snapshot) -> int:
        """The number of the snapshot's files that `inventory` would open."""
        known, missing = self._cache.match(snapshot.files)
        if missing.num_rows:
            return missing.num_rows
        return self._unchecked_doubles(known)

    def compact_statistics(self, snapshot: Snapshot) -> None:
        """Compact the statistics cache if most of its rows describe files that the table does not have."""
        self._cache.gather(snapshot.files)

    def spent_notes(self, snapshot: Snapshot) -> list[str]:
        """Locations of notes beside the table on files that it no longer has; none if a file must be opened first."""

        def describe() -> pa.Table | None:
            known, missing = self._cache.match(snapshot.files)
            return None if missing.num_rows else known

        return self._spent_notes(describe)

    def commit(self, swap: Swap, snapshot: Snapshot) -> int:
        """Check everything again on one handle and commit; returns the new version."""
        if swap.assigns_sequences and snapshot.files["max_seq"].null_count:
            # The next sequence depends on every file: read the files without statistics in the log now.
            self.inventory(snapshot)
        with self._settling(swap) as settled:
            version = self._commit(settled, snapshot.handle, snapshot.files)
        self._checkpointing.committed(version)
        if swap.again is not None:
            # The entry of this commit has its token, too, so a kill before this line does no harm.
            commit_tokens.forget(self._layout, [swap.again.version])
        return version

    def head(self, snapshot: Snapshot) -> TableHead | None:
        """A snapshot without its files; None of a dropped stream."""
        from retention.stores.delta.heads import head_of

        return head_of(self, snapshot)

    def commit_on(self, swap: Swap, handle: DeltaHandle, counters: Counters) -> int:
        """Commit a swap that only adds files on exactly one version, whose files are not looked at; see `heads`."""
        from retention.stores.delta.commit import CommitAttempt, OvertakenError

        live = empty_table(FILE_STATS)
        with self._settling(swap) as settled:
            attempt = CommitAttempt(self._layout, self._settings, settled, handle, live, counters)
            try:
                version = attempt.commit(self._now_ms())
            except OvertakenError as error:
                raise self._overtaken(error) from error
        self._checkpointing.committed(version)
        return version

    def next_handle(self, handle: DeltaHandle, run: str) -> DeltaHandle | None:
        """The version after a handle's, without its files; None unless it is the newest, and `run` made it."""
        from retention.stores.delta import table as delta_table

        commit_tokens.refuse_lost(self._layout)
        newer = delta_table.next_handle(self._layout, handle, run)
        if newer is not None:
            self._cache.merge()
            before = None if self._before is None else self._before.table
            if before is not None and self._checkpointing.is_old(before.version):
                self._before = None
        return newer

    def find_commit(self, run: str, after: int = -1) -> int | None:
        """The version later than `after` that the run committed; None if no log entry names the run."""
        return delta_history.find_run(self._layout, run, after)

    def has_entries(self, after: int, until: int) -> bool:
        """Whether the log still has the entries of all versions later than `after`, up to `until`."""
        return set(range(after + 1, until + 1)) <= set(delta_history.versions(self._layout)[0])

    def finish(self) -> None:
        """Set the table's properties to the configuration's grace; write a checkpoint after ten new versions.

        The commit before it stands whatever fails here: that is logged, and left to the next run.

        Raises:
            LostCommitError: another program overwrote a commit meanwhile.
        """
        from retention.stores.delta import properties

        try:
            commit_tokens.refuse_lost(self._layout)
            if self._grace_differs:
                from retention.stores.delta import table as delta_table

                table = delta_table.open_table(self._layout)
                for_deltalake = partial(delta_table.for_deltalake, self._layout)
                properties.follow(self._layout, table, self._settings.grace_ns, for_deltalake)
            self._checkpointing.write_if_due()
        except LostCommitError:
            raise
        except (OSError, RetentionError) as error:
            _log.warning(
                "stream %s: the next run will do what follows a commit: %s", self.stream, error
            )

    def _commit(self, swap: Swap, handle: DeltaHandle, live: pa.Table) -> int:
        from retention.stores.delta.commit import OvertakenError

        attempts = 1 if swap.assigns_sequences else ATTEMPTS
        for number in range(attempts):
            if number:
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311
                handle, live = self._again(handle)
            try:
                return self._attempt(swap, handle, live).commit(self._now_ms())
            except OvertakenError as error:
                if swap.assigns_sequences:
                    raise self._overtaken(error) from error
                refused = first_line(error)
        raise BusyError(
            f"stream {self.stream}: {attempts} times another commit came first ({refused}); nothing was changed; try "
            "again later"
        )

    @contextmanager
    def _settling(self, swap: Swap) -> Iterator[Swap]:
        """The swap as it may be committed in the block, once the statistics of its files are cached."""
        swap = self._staged.unclaimed(swap)
        self._cache.add(swap.add)
        with uninterrupted(), self._staged.settling(swap.add["path"].to_pylist()):
            yield swap

    def _overtaken(self, error: Exception) -> ConflictError:
        return ConflictError(
            f"stream {self.stream}: another commit came first ({first_line(error)}); nothing was changed; try again"
        )

    def _again(self, handle: DeltaHandle) -> tuple[DeltaHandle, pa.Table]:
        """The newest version of the same table."""
        from retention.stores.delta import table as delta_table
        from retention.stores.delta.returned import refuse_returned

        newer, live = delta_table.read_handle(self._layout, delta_table.OpenedBefore(handle.table))
        if newer.table_id != handle.table_id:
            raise StalePlanError(
                f"stream {self.stream}: the table was made anew meanwhile; nothing was changed; plan again"
            )
        commit_tokens.refuse_lost(self._layout)
        refuse_returned(self._layout, newer.table.version)
        return newer, live

    def _attempt(self, swap: Swap, handle: DeltaHandle, live: pa.Table) -> CommitAttempt:
        from retention.stores.checks import inventory as index
        from retention.stores.delta.commit import CommitAttempt

        live = self._with_ranges(live)
        counters: Counters = index.effective(handle.logged, live)
        return CommitAttempt(self._layout, self._settings, swap, handle, live, counters)

    def _with_ranges(self, live: pa.Table) -> pa.Table:
        """Fill in sequence ranges missing in the log from the statistics cache."""
        if not live["max_seq"].null_count:
            return live
        unknown = live.filter(pc.is_null(live["max_seq"]))
        known, _ = self._cache.match(unknown.select(LOGGED_FILES.names))
        names = [*LOGGED_FILES.names, "min_seq", "max_seq"]
        rest = live.filter(pc.invert(pc.is_in(live["path"], value_set=known["path"])))
        return pa.concat_tables(
            [rest.select(names), known.select(names)], promote_options="permissive"
        )
