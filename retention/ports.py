"""The port of a table: a Store, which swaps files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from retention.core.counter_names import counters_of
from retention.core.counters import EPOCH, Counters
from retention.core.run_names import parse_run_name
from retention.engine_port import Run, run_here

if TYPE_CHECKING:
    import pyarrow as pa

    from retention.core.inventory import DataFile, Inventory
    from retention.core.prefix import Prefix
    from retention.core.table_requirements import TableRequirement
    from retention.core.table_updates import TableUpdate


@dataclass(frozen=True)
class LostCommit:
    """A commit of ours that no version has any more, because another program overwrote its log entry."""

    version: int
    program: str
    """The program that wrote the entry in its place, and its operation."""
    token: str
    """The token of the lost entry; only an entry that commits the same again has it, too."""
    metadata: Mapping[str, Any]
    """The metadata of the commit, as `Swap` had it."""
    removed: tuple[str, ...]
    """Paths of the files that it removed."""
    added: pa.Table
    """The files that it added and that still exist, shape `FILE_STATS`."""
    missing: tuple[str, ...]
    """Paths of the added files that are missing from the storage, or have another length."""
    new: frozenset[str]
    """Paths of the added files that readers of changes had not seen before."""
    counters: Mapping[str, int]
    """Name → value of every counter that it set in the table's epoch."""
    data_change: bool
    """Whether the commit changed the table's messages."""


@dataclass(frozen=True)
class Swap:
    """The only thing a store can commit, atomically or not at all.

    `remove` has the shape `LOGGED_FILES` (a pin: path, length and modification time as decided upon), `add` the
    shape `FILE_STATS` and names files that are already staged. `metadata` is small and JSON-able: at least `run`; for
    a retention run also `plan_id`, `as_of_ns` and `by_rule`. Everything else that a commit requires or sets is a type
    of its own (`core.table_requirements`, `core.table_updates`).
    """

    remove: pa.Table
    add: pa.Table
    metadata: Mapping[str, Any]
    requirements: Sequence[TableRequirement] = ()
    updates: Sequence[TableUpdate] = ()
    data_change: bool = True
    """Whether the commit changes the table's messages; False: the same messages, in other files."""
    again: LostCommit | None = None
    """The lost commit that this one repeats where possible; afterwards it no longer counts as lost."""

    @cached_property
    def sets(self) -> dict[str, int]:
        """Name → value of every counter that the commit sets."""
        return {name: value for update in self.updates for name, value in update.counters.items()}

    @property
    def next_seq(self) -> Mapping[int, int]:
        """Partition → the next sequence that the commit sets."""
        return counters_of(self.sets).next_seq

    @property
    def epoch(self) -> int | None:
        """The epoch that the commit begins, or returns to; None: it is unchanged."""
        return self.sets.get(EPOCH)

    @property
    def run_started_ns(self) -> int | None:
        """Start of the run that commits this, nanoseconds since the epoch; None: no recorded run commits it."""
        name = parse_run_name(str(self.metadata.get("run", "")))
        return None if name is None else name.started_ns

    @property
    def assigns_sequences(self) -> bool:
        """Whether a rival's earlier commit makes the swap wrong."""
        return any(update.assigns_sequences for update in self.updates)


@dataclass(frozen=True)
class Snapshot:
    """A stream's table at one version, read on one handle."""

    version: int
    table_id: str
    files: pa.Table
    """Shape `LOGGED_FILES`, plus the statistics that the log itself has."""
    counters: Counters
    handle: Any = None
    """The store's own handle; a commit made on this snapshot is checked against exactly this version."""
    follows: bool = True
    """Whether the table matches the configuration; if not, nothing is cached that would avoid opening it."""
    seal: str | None = None
    """The seal of the log entry that made this version, as `VersionToken` has it; None: it is not known."""


class TableHead(Protocol):
    """A stream's table at one version, without its files; each of them was checked, at this version or before it."""

    @property
    def version(self) -> int:
        """The version."""
        ...

    @property
    def counters(self) -> Counters:
        """The effective counters."""
        ...

    def append(self, swap: Swap) -> int:
        """Commit a swap that only adds files, from the next sequences on, as the next version; as `Store.commit`."""
        ...

    def after(self, run: str) -> TableHead | None:
        """The newest version, if the commit of `run` made it on this one; None: the table has to be opened."""
        ...


@dataclass(frozen=True)
class VersionToken:
    """A token that identifies one state of a stream, read without opening the table."""

    version: int
    seal: str
    """The identity of the log entry that made this version: a digest of its bytes."""
    wants: str = ""
    """The configuration's settings of the table itself; values cached under other settings are not valid."""
    beside: str = ""
    """Evidence that no file was added without an entry, where that is possible."""

    def tells(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot, opened after this token was read, is of the same state of the log."""
        return (self.version, self.seal) == (snapshot.version, snapshot.seal)


@dataclass(frozen=True)
class Returned:
    """A commit of another writer that made files from others that had been removed before."""

    version: int
    program: str
    removed: tuple[str, ...]
    """Paths that had been removed before: their rows in `made` have reappeared."""
    replaced: tuple[str, ...]
    """Paths that the commit removed itself: their rows in `made` belong there."""
    made: tuple[str, ...]
    """Paths that the commit added."""


class IncrementalInventory(Protocol):
    """A stream's newest state, read without opening its table."""

    def head(self, files: int) -> Prefix | None:
        """The oldest segments with at least this many files, or all; None: it is lost, and the table must be opened."""
        ...


@dataclass(frozen=True)
class Lifetime:
    """The present table among those that a stream has had: each drop ends one, and the next commit begins another."""

    generation: int = 0
    """The epoch in which the table began; 0: it is the first one, or there is none."""
    dropped_ns: int | None = None
    """The instant at which the stream was dropped, nanoseconds since the epoch; None: it is not dropped."""


class UnopenedTable(Protocol):
    """One stream's table, as far as it is known without opening it."""

    def store(self) -> TableStore:
        """The table to read and write, the same one at each call; no file is touched until a method is called."""
        ...

    def exists(self) -> bool:
        """Whether the table exists; a dropped one does not.

        Raises:
            DamagedError: the table existed and is missing.
        """
        ...

    def lifetime(self) -> Lifetime:
        """The lifetime of the table, also of a dropped one; opens it only if the stream was ever dropped."""
        ...

    def version_token(self) -> VersionToken | None:
        """The newest state's token; None if a token costs as much as opening the table."""
        ...


class StagingArea(Protocol):
    """A source of new data files that no commit names yet: a store, or a run, which deletes those that it leaves."""

    def stage(
        self, partition: int, segment: int, count: int = 1, *, merged: bool = False
    ) -> tuple[DataFile, ...]:
        """New files of a segment, each with a unique final path, not written yet; their directories exist.

        Args:
            partition: the segment's partition.
            segment: the segment's base.
            count: the number of files among which rows are to be divided; those that are not written do not matter.
            merged: whether a merge writes them.
        """
        ...

    def stage_copy(self, source: DataFile) -> DataFile:
        """A new file to replace `source`, as from `stage`."""
        ...

    def stage_vector(self, source: DataFile) -> DataFile:
        """The file of `source` under a new deletion vector, as from `stage`; the data file itself is not new."""
        ...

    def discard(self, paths: Sequence[str]) -> None:
        """Delete the files staged under these paths that no commit named, under every name that attempts gave them."""
        ...


class Store(UnopenedTable, StagingArea, Protocol):
    """One stream's table, for reading and writing."""

    def create(self) -> None:
        """Create the empty table, or replace a dropped one; an existing table is unchanged."""
        ...

    def snapshot(self) -> Snapshot:
        """Open the table once.

        Raises:
            RefusedError: the table uses a feature that the engine cannot handle safely.
            LostCommitError: another program overwrote a commit of ours in the log.
            ForeignRowsError: another writer may have restored removed rows.
            DamagedError: the log cannot be read.
        """
        ...

    def inventory(self, snapshot: Snapshot, run: Run = run_here) -> Inventory:
        """Complete the snapshot's files to full statistics, from the log and the cache first.

        Args:
            snapshot: the table.
            run: runs the tasks that read files without statistics.

        Raises:
            ForeignRowsError: rows of other writers break the storage rules.
            DamagedError: a data file that had to be read is damaged.
        """
        ...

    def data_files(self, files: pa.Table) -> list[DataFile]:
        """The current locations of the live files in `files` (a table with the columns of `LOGGED_FILES`)."""
        ...

    def hidden_rows(self, snapshot: Snapshot) -> Mapping[str, int]:
        """Path of each file under a deletion vector → the number of rows that it hides."""
        ...

    def takes_vector(self, snapshot: Snapshot, row: Mapping[str, Any]) -> bool:
        """Whether a file that loses rows is better hidden in part by a deletion vector than copied.

        Args:
            snapshot: the table.
            row: the file's row of `PLANNED_FILES`: its path, and the numbers of its messages and of removed ones.
        """
        ...

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files` (`FILE_STATS` rows): shape `SUBJECT_COUNTS_OF_FILES`."""
        ...

    def commit(self, swap: Swap, snapshot: Snapshot) -> int:
        """Check everything again on one handle and commit; the new version.

        A swap that assigns sequences is tried once, on `snapshot` itself. Any other is tried again on a fresh
        handle, with every check repeated, as long as blind appends and unrelated commits come first.

        Raises:
            StalePlanError: a pinned file was removed or changed.
            ConflictError: a rival commit came first and `swap` assigns sequences.
            BusyError: rivals kept coming first.
            VerificationError: an added file is missing or has another length.
            CommitUnknownError: the storage failed while committing, and the outcome is unknown.
        """
        ...

    def head(self, snapshot: Snapshot) -> TableHead | None:
        """A snapshot without its files; None: commits on it need them."""
        ...

    def find_commit(self, run: str, after: int = -1) -> int | None:
        """The version later than `after` that the run's commit made; None: no entry of the log names the run."""
        ...

    def finish(self) -> None:
        """End a run: checkpoint the log if enough versions are new."""
        ...


class InventoryCaching(Protocol):
    """The files beside a table that save reading it again: the inventory cache, statistics, notes on duplicates."""

    def incremental_inventory(self, token: VersionToken) -> IncrementalInventory | None:
        """The inventory of a token's state, as far as it is cached; None where the table itself has to be opened.

        Raises:
            ForeignRowsError, DamagedError: as `Store.inventory`, for files that came since it was cached.
        """
        ...

    def cache_inventory(self, inventory: Inventory, token: VersionToken) -> None:
        """Cache the inventory of a token's state, from which later incremental inventories continue."""
        ...

    def count_undescribed(self, snapshot: Snapshot) -> int:
        """The number of files that `Store.inventory` would open: without statistics, or to compare doubles."""
        ...

    def compact_statistics(self, snapshot: Snapshot) -> None:
        """Merge the statistics kept beside the table, without those of files that are gone, where that pays."""
        ...

    def spent_notes(self, snapshot: Snapshot) -> list[str]:
        """Locations of notes beside the table on files that a snapshot does not have."""
        ...


class Repairable(Protocol):
    """The state of a table that `Store` refuses or corrects, for repairs and for runs that were interrupted."""

    def resurrected_files(self) -> tuple[Snapshot, tuple[Returned, ...]]:
        """Open the table and list the commits that resurrected files, which `Store.snapshot` refuses.

        Raises:
            RefusedError, DamagedError: as `Store.snapshot`.
        """
        ...

    def lost_commits(self) -> tuple[Snapshot, tuple[LostCommit, ...]]:
        """Open the table and list its overwritten commits, which `Store.snapshot` refuses.

        Raises:
            RefusedError, ForeignRowsError, DamagedError: as `Store.snapshot`.
        """
        ...

    def partition_valid_files(self, snapshot: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Statistics of the files with possible numbers, and the files with impossible ones.

        Shapes `FILE_STATS`, sorted, and `LOGGED_FILES`; with none of the latter, `Store.inventory` has the former.

        Raises:
            ForeignRowsError: rows of other writers break another storage rule.
            DamagedError: a data file that had to be read is damaged.
        """
        ...

    def logged_counters(self, snapshot: Snapshot) -> Counters:
        """The counters as the log has them, not raised to the values that files prove."""
        ...

    def last_counted(self, snapshot: Snapshot) -> Mapping[int, int]:
        """Partition → the highest next sequence within bounds in the existing entries of the log.

        Raises:
            DamagedError: the log cannot be read.
        """
        ...

    def has_entries(self, after: int, until: int) -> bool:
        """Whether the log still has the entries of all versions later than `after`, up to `until`."""
        ...


class TableStore(Store, InventoryCaching, Repairable, Protocol):
    """One stream's table in every role. Implementations: `stores.delta.store`, `stores.parquet.store`."""
