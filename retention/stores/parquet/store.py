"""A stream as plain Parquet files: the log decides which files are live, and files move to their locations later."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counter_names import counters_of, risen
from retention.core.counters import Counters
from retention.core.inventory import Inventory
from retention.core.read_count import ReadCount
from retention.engine_port import Run, run_here
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    RetentionError,
    StorageError,
)
from retention.ports import LostCommit, Returned, Snapshot, Swap, VersionToken
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import reason_of
from retention.storage.signals import uninterrupted
from retention.stores.checks import duplicates, number_bounds
from retention.stores.checks import inventory as index
from retention.stores.checks import swap as swaps
from retention.stores.file_store import FileStore, begin_again, table_id_of
from retention.stores.layout import Layout, StoreSettings
from retention.stores.parquet.adopt import refuse_unfit, take_in
from retention.stores.parquet.log import (
    CommitEntry,
    CommitState,
    ParquetLog,
    before_first_entry,
    with_removed,
)
from retention.stores.parquet.settle_files import Places

ATTEMPTS = 20
_LONGEST_PAUSE_S = 0.05
_log = logging.getLogger(__name__)


@dataclass
class ParquetHandle:
    """One state of the log; adopting files of other writers advances it."""

    state: CommitState
    foreign: list[str]
    """Paths of files that no log entry ever named."""


class _TableLog:
    """Implements `TableLog`."""

    def __init__(self, layout: Layout, log: ParquetLog, places: Places) -> None:
        self._layout = layout
        self._log = log
        self._places = places

    def exists(self) -> bool:
        return self._log.exists()

    def version_token(self) -> VersionToken | None:
        """The newest log entry and the directories' times; None if a file without an entry may have been added."""
        return self._places.version_token()

    def begin(self, now_ms: int) -> None:
        files.make_directory(self._layout.messages)
        self._log.append(CommitEntry(0, now_ms, table_id=str(uuid.uuid4())))
        reached(Step.TABLE_MADE)

    def standing(self) -> tuple[bool, Counters]:
        state = self._places.finish_moves()
        return bool(state.files.num_rows or self._places.newcomers(state)), state.counters


class ParquetStore(FileStore):
    """Implements `retention.ports.TableStore`."""

    def __init__(self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]) -> None:
        self._log = ParquetLog(layout)
        self._places = Places(layout, self._log)
        log = _TableLog(layout, self._log, self._places)
        super().__init__(layout, settings, clock, log, self._places)

    def incremental_inventory(self, token: VersionToken) -> None:
        """Return None: reading the log is already cheap and complete."""

    def cache_inventory(self, inventory: Inventory, token: VersionToken) -> None:
        """Do nothing: the log itself has all statistics."""

    def exists(self) -> bool:
        """Whether the table exists, or a file of another writer requires one."""
        if super().exists():
            return True
        return not self._log.exists() and bool(self._places.foreign(before_first_entry()))

    def create(self) -> None:
        """Create the empty table; do nothing if it exists.

        Raises:
            ForeignRowsError: the table could not adopt existing files; it is not created.
        """
        if not self._log.exists():
            refuse_unfit(self._layout)
        if self._create():
            begin_again(self)

    def snapshot(self) -> Snapshot:
        """Open the table once, after finishing the moves that a run left unfinished."""
        with self._opening():
            if not self._log.exists() and self.exists():
                self.create()
            state = self._places.finish_moves()
        handle = ParquetHandle(state, self._places.newcomers(state))
        self._follow(state.counters, state.files)
        table_id = table_id_of(state.table_id, state.counters)
        return Snapshot(
            state.version, table_id, state.files, state.counters, handle, seal=state.seal
        )

    def inventory(self, snapshot: Snapshot, run: Run = run_here) -> Inventory:
        """Adopt new files of other writers, in this process; the log has all statistics of the other files."""
        del run
        handle: ParquetHandle = snapshot.handle
        read = self._take_in(handle)
        state = handle.state
        table = index.in_order(state.files)
        number_bounds.refuse_impossible(self._layout, table)
        number_bounds.refuse_counters(self._layout, state.counters)
        overlapping = index.refuse_overlaps(self.stream, table)
        read += duplicates.refuse_duplicates(self._layout, overlapping, self.data_files)
        counters = index.effective(state.counters, table)
        self._staged.claims = counters.staging_claims
        table_id = table_id_of(state.table_id, counters)
        return Inventory(self.stream, table_id, state.version, table, counters, read)

    def resurrected_files(self) -> tuple[Snapshot, tuple[Returned, ...]]:
        """Open the table to repair it; without writers that overlook removals, no file is resurrected."""
        return self.snapshot(), ()

    def lost_commits(self) -> tuple[Snapshot, tuple[LostCommit, ...]]:
        """Open the table to repair it; without programs that overwrite log entries, no commit is lost."""
        return self.snapshot(), ()

    def partition_valid_files(self, snapshot: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Statistics of the files with possible numbers, and the files with impossible ones."""
        handle: ParquetHandle = snapshot.handle
        self._take_in(handle)
        known = handle.state.files
        bad = number_bounds.impossible(self._layout, known)
        sound = index.in_order(known.filter(pc.invert(bad)))
        return sound, known.filter(bad).select(LOGGED_FILES.names)

    def hidden_rows(self, snapshot: Snapshot) -> Mapping[str, int]:
        """None: plain Parquet has no deletion vectors."""
        return {}

    def takes_vector(self, snapshot: Snapshot, row: Mapping[str, Any]) -> bool:
        """Never: plain Parquet has no deletion vectors."""
        return False

    def logged_counters(self, snapshot: Snapshot) -> Counters:
        """The counters in the log, without the values that files prove."""
        handle: ParquetHandle = snapshot.handle
        return handle.state.counters

    def last_counted(self, snapshot: Snapshot) -> Mapping[int, int]:
        """Partition → the highest next sequence within bounds in the remaining log entries."""
        handle: ParquetHandle = snapshot.handle
        return self._log.last_counted(handle.state.version)

    def count_undescribed(self, snapshot: Snapshot) -> int:
        """The number of the snapshot's files that `inventory` would open."""
        handle: ParquetHandle = snapshot.handle
        if handle.foreign:
            return len(handle.foreign)
        return self._unchecked_doubles(snapshot.files)

    def compact_statistics(self, snapshot: Snapshot) -> None:
        """Do nothing: the log itself has all statistics."""

    def spent_notes(self, snapshot: Snapshot) -> list[str]:
        """Locations of notes beside the table on files that it no longer has; none before the next adoption."""
        handle: ParquetHandle = snapshot.handle
        return self._spent_notes(lambda: None if handle.foreign else snapshot.files)

    def commit(self, swap: Swap, snapshot: Snapshot) -> int:
        """Check everything again on one state and create the next log entry; returns its version."""
        if swap.assigns_sequences:
            # The next sequence depends on every file.
            self._take_in(snapshot.handle)
            self._refuse_new(snapshot.handle, swap)
        swap = self._staged.unclaimed(swap)
        with uninterrupted():
            with self._staged.settling(swap.add["path"].to_pylist()):
                version = self._commit(swap, snapshot.handle.state)
            try:
                self._settle(version, snapshot.handle.state)
            except RetentionError as error:
                _log.warning(
                    "stream %s: the next run will finish the moves: %s", self.stream, error
                )
        return version

    def find_commit(self, run: str, after: int = -1) -> int | None:
        """The version later than `after` that the run committed; None if no log entry names the run."""
        return self._log.find(run, after)

    def has_entries(self, after: int, until: int) -> bool:
        """Whether the log still has the entries of all versions later than `after`, up to `until`."""
        return self._log.has(after, until)

    def finish(self) -> None:
        """Do nothing: the commits leave nothing to finish."""

    def _take_in(self, handle: ParquetHandle) -> ReadCount:
        read = ReadCount()
        while handle.foreign:
            try:
                entry, cost = take_in(self._layout, self._log, handle.state, handle.foreign)
            except (OSError, RetentionError):
                # A rival's commit may have added or removed such files since the log was read; those are not foreign.
                if self._log.newest() == handle.state.version:
                    raise
            else:
                read += cost
                # If a rival's entry is first, the new state determines the files left to adopt.
                self._log.append(entry(self._now_ms()), handle.state)
                reached(Step.FOREIGN_TAKEN_IN)
            handle.state = self._places.finish_moves(handle.state)
            handle.foreign = self._places.newcomers(handle.state)
        return read

    def _refuse_new(self, handle: ParquetHandle, swap: Swap) -> None:
        """Refuse if another writer added files since the snapshot with sequences that may conflict with the swap's."""
        since = pc.min(swap.add["segment"]).as_py()
        if since is not None and self._places.foreign(handle.state, since):
            raise ConflictError(
                f"stream {self.stream}: another commit came first, or another writer's files; nothing was changed; "
                "try again"
            )

    def _commit(self, swap: Swap, state: CommitState) -> int:
        for _ in range(ATTEMPTS):
            if self._append(swap, state):
                return state.version + 1
            if swap.assigns_sequences:
                raise ConflictError(
                    f"stream {self.stream}: another commit came first; nothing was changed; try again"
                )
            time.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311
            state = self._places.finish_moves(state)
        raise BusyError(
            f"stream {self.stream}: {ATTEMPTS} times another commit came first; nothing was changed; try "
            "again later"
        )

    def _append(self, swap: Swap, state: CommitState) -> bool:
        counters = index.effective(state.counters, state.files)
        swaps.check(self.stream, swap, state.files, counters)
        added = swap.add.select(FILE_STATS.names).to_pylist()
        swaps.check_staged(swap, [self._places.find(row["path"]) for row in added])
        here = counters if swap.epoch is None else Counters()
        sets = counters_of(risen(swap.sets, here))
        entry = CommitEntry(
            version=state.version + 1,
            time_ms=self._now_ms(),
            remove=swap.remove["path"].to_pylist(),
            add=added,
            next_seq={**here.next_seq, **sets.next_seq},
            open_base={**here.open_base, **sets.open_base},
            batches=sets.batches,
            edits=sets.edits,
            run=swap.metadata.get("run"),
            metadata=with_removed(swap.metadata, {**here.removed, **sets.removed}),
        )
        try:
            return self._log.append(entry, state)
        except OSError as error:
            raise self._failed(entry.version, error) from error

    def _failed(self, version: int, error: OSError) -> RetentionError:
        """The error for a failed write of a log entry; depends on whether the entry exists."""
        reason = reason_of(error)
        try:
            is_there = self._log.newest() >= version
        except StorageError:
            return CommitUnknownError(
                f"stream {self.stream}: writing log entry {version} failed ({reason}), and whether it is there "
                "cannot be seen now; look at the stream's history before anything else, and delete no file"
            )
        if is_there:
            return CommitUnknownError(
                f"stream {self.stream}: writing log entry {version} failed ({reason}), yet it is there; look at "
                "the stream's history before anything else, and delete no file"
            )
        return RetentionError(
            f"stream {self.stream}: log entry {version} could not be written ({reason}); nothing was changed; "
            "free space or repair the disk, then try again"
        )

    def _settle(self, version: int, known: CommitState) -> None:
        """Finish the moves of a commit, and write a listing if one is due; the next run can do both instead."""
        state = self._places.finish_moves(known)
        if state.version == version and state.wants_list:
            self._log.write_list(state)
