"""The port of a table: a Store, which swaps files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from retention.core.counter_names import counters_of
from retention.core.inventory import EPOCH, Counters, DataFile, Inventory
from retention.core.run_names import parse_run_name
from retention.core.table_requirements import TableRequirement
from retention.core.table_updates import TableUpdate
from retention.engine_port import Run, run_here


@dataclass(frozen=True)
class LostCommit:
    """A commit of ours of which another program overwrote the log entry, so that no version has it."""

    version: int
    program: str
    """The program that wrote the entry in its place, and what it says it did."""
    token: str
    """The token of the lost entry, which no other entry has unless it commits the same again."""
    metadata: Mapping[str, Any]
    """The metadata of the commit, as `Swap` had it."""
    removed: tuple[str, ...]
    """Paths of the files that it removed."""
    added: pa.Table
    """The files that it added and that are still there, shape `FILE_STATS`."""
    missing: tuple[str, ...]
    """Paths of the files that it added and that are gone from the storage, or have another length."""
    new: frozenset[str]
    """Paths of the added files that readers of changes had not seen before."""
    counters: Mapping[str, int]
    """Name → value of every counter that it set, those of another epoch than the table's aside."""
    data_change: bool
    """Whether the table held other messages behind it."""


@dataclass(frozen=True)
class Swap:
    """The only thing a store can commit, atomically or not at all.

    `remove` has the shape `LOGGED_FILES` (a pin: path, length and modification time as decided upon), `add` the
    shape `FILE_STATS` and names files that are already staged. `metadata` is small and JSON-able: at least `run`; for
    a retention run also `plan_id`, `as_of_ns` and `by_rule`. Everything else that a commit rests on or sets is a type
    of its own (`core.table_requirements`, `core.table_updates`).
    """

    remove: pa.Table
    add: pa.Table
    metadata: Mapping[str, Any]
    requirements: Sequence[TableRequirement] = ()
    updates: Sequence[TableUpdate] = ()
    data_change: bool = True
    """Whether the table holds other messages behind the commit; False: the same, in other files."""
    again: LostCommit | None = None
    """The lost commit that this one makes again, as far as it can: afterwards it is not lost any more."""

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
        """The epoch that the commit begins, or goes back to; None: it stays."""
        return self.sets.get(EPOCH)

    @property
    def run_started_ns(self) -> int | None:
        """Start of the run that commits this, nanoseconds since the epoch; None: it is none of the run history."""
        name = parse_run_name(str(self.metadata.get("run", "")))
        return None if name is None else name.started_ns

    @property
    def assigns_sequences(self) -> bool:
        """Whether a rival's commit in between makes the swap wrong."""
        return any(update.assigns_sequences for update in self.updates)


@dataclass(frozen=True)
class Snapshot:
    """A stream's table at one version, read on one handle."""

    version: int
    table_id: str
    files: pa.Table
    """Shape `LOGGED_FILES`, plus whatever statistics the log itself has."""
    counters: Counters
    handle: Any = None
    """The store's own handle; a commit made on this snapshot is checked against exactly this version."""
    follows: bool = True
    """Whether the table is as the configuration wants it; if not, nothing is remembered that spares opening it."""
    seal: str | None = None
    """The seal of the log entry that made this version, as `VersionToken` has it; None: it is not known."""


@dataclass(frozen=True)
class VersionToken:
    """A token that tells one state of a stream from every other, learned without opening the table."""

    version: int
    seal: str
    """The identity of the log entry that made this version: a digest of its bytes."""
    wants: str = ""
    """The configuration's wishes of the table itself: what is remembered under other wishes does not count."""
    beside: str = ""
    """Evidence that nothing came without an entry, where that can be."""

    def tells(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot that was opened after this token was read is of this very state of the log."""
        return (self.version, self.seal) == (snapshot.version, snapshot.seal)


@dataclass(frozen=True)
class TailTotals:
    """Totals of the part of a stream that is not looked at, because it lies behind a prefix."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Prefix:
    """The oldest segments of a stream, as an inventory of their own, and what lies behind them."""

    inventory: Inventory
    later: TailTotals


@dataclass(frozen=True)
class Returned:
    """A commit of another writer that made files of such as had left the table before."""

    version: int
    program: str
    removed: tuple[str, ...]
    """Paths that had left before: what of them is in `made` came back."""
    replaced: tuple[str, ...]
    """Paths that the commit removed itself: what of them is in `made` is where it belongs."""
    made: tuple[str, ...]
    """Paths that the commit added."""


class IncrementalInventory(Protocol):
    """A stream's newest state, known without opening its table."""

    def head(self, files: int) -> Prefix | None:
        """The oldest segments with at least so many files, or all; None: it is lost, the table has to be opened."""
        ...


class Store(Protocol):
    """One stream's table. Implementations: `stores.delta.store`, `stores.parquet.store`."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        ...

    def exists(self) -> bool:
        """Whether the table is there; a dropped one is not.

        Raises:
            DamagedError: the table is not there, and was.
        """
        ...

    def dropped_ns(self) -> int | None:
        """The instant at which the stream was dropped, nanoseconds since the epoch; None: it is not dropped."""
        ...

    def generation(self) -> int:
        """The generation of the table (`Counters.generation`), 0 where there is none."""
        ...

    def note_dropping(self) -> None:
        """Record that the stream is about to be dropped, before the commit that does so."""
        ...

    def create(self) -> None:
        """Make the empty table, also in the place of a dropped one; nothing happens if it is there."""
        ...

    def version_token(self) -> VersionToken | None:
        """The newest state's token; None where telling states apart costs as much as opening the table."""
        ...

    def incremental_inventory(self, token: VersionToken) -> IncrementalInventory | None:
        """The inventory of a token's state, as far as it is kept; None where the table itself has to be opened.

        Raises:
            ForeignRowsError, DamagedError: as `inventory`, for files that came since it was kept.
        """
        ...

    def cache_inventory(self, inventory: Inventory, token: VersionToken) -> None:
        """Keep an inventory of the state that a token tells, where later outlooks go on from it."""
        ...

    def snapshot(self) -> Snapshot:
        """Open the table once.

        Raises:
            RefusedError: the table uses a feature that the engine does not know to handle safely.
            LostCommitError: another program overwrote a commit of ours in the log.
            ForeignRowsError: another writer may have brought back what was removed.
            DamagedError: the log cannot be read.
        """
        ...

    def resurrected_files(self) -> tuple[Snapshot, tuple[Returned, ...]]:
        """Open the table to mend it: what has come back is not refused, as `snapshot` does, but listed.

        Raises:
            RefusedError, DamagedError: as `snapshot`.
        """
        ...

    def lost_commits(self) -> tuple[Snapshot, tuple[LostCommit, ...]]:
        """Open the table to repair it: commits that were overwritten are not refused, as `snapshot` does, but listed.

        Raises:
            RefusedError, ForeignRowsError, DamagedError: as `snapshot`.
        """
        ...

    def inventory(self, snapshot: Snapshot, run: Run = run_here) -> Inventory:
        """Complete the snapshot's files to full statistics, from the log and the cache first.

        Args:
            snapshot: the table.
            run: runs the tasks that read files which nothing describes.

        Raises:
            ForeignRowsError: rows of other writers break the storage rules.
            DamagedError: a data file that had to be read is damaged.
        """
        ...

    def partition_valid_files(self, snapshot: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Statistics of the files with numbers that messages can have, and the files with others.

        Shapes `FILE_STATS`, sorted, and `LOGGED_FILES`; with none of the latter, `inventory` has the former.

        Raises:
            ForeignRowsError: rows of other writers break another storage rule.
            DamagedError: a data file that had to be read is damaged.
        """
        ...

    def logged_counters(self, snapshot: Snapshot) -> Counters:
        """The counters as the log has them, whatever its files hold."""
        ...

    def last_counted(self, snapshot: Snapshot) -> Mapping[int, int]:
        """Partition → the highest next sequence that the log, as far as it is there, counted within bounds.

        Raises:
            DamagedError: the log cannot be read.
        """
        ...

    def count_undescribed(self, snapshot: Snapshot) -> int:
        """The number of the snapshot's files that have no statistics yet, so that `inventory` would open them."""
        ...

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files` (`FILE_STATS` rows): shape `SUBJECT_COUNTS_OF_FILES`."""
        ...

    def stage(self, partition: int, segment: int) -> DataFile:
        """A new file of that segment, with a unique final path, not written yet; its directories exist."""
        ...

    def stage_apart(self, partition: int, segment: int, count: int) -> tuple[DataFile, ...]:
        """New files of that segment, among which rows are to be divided: those that are not written do not matter."""
        ...

    def stage_merged(self, partition: int, segment: int, count: int) -> tuple[DataFile, ...]:
        """New files of that segment for what a merge writes, as `stage_apart` gives them out."""
        ...

    def is_apart(self, file: DataFile) -> bool:
        """Whether a file is one of several that `stage_apart` gave out together, or the copy of one."""
        ...

    def stage_copy(self, source: DataFile) -> DataFile:
        """A new file that is to take the place of `source`, as `stage` gives one."""
        ...

    def data_files(self, files: pa.Table) -> list[DataFile]:
        """Locations at which the live files in `files` (any table with the columns of `LOGGED_FILES`) open now."""
        ...

    def commit(self, swap: Swap, snapshot: Snapshot) -> int:
        """Check everything again on one handle and commit; the new version.

        A swap that assigns sequences is tried once, on `snapshot` itself. Any other is tried again on a fresh
        handle, with every check repeated, while blind appends and unrelated commits come first.

        Raises:
            StalePlanError: a pinned file is gone or changed.
            ConflictError: a rival commit came first and `swap` assigns sequences.
            BusyError: rivals kept coming first.
            VerificationError: an added file is missing or has another length.
            CommitUnknownError: the storage failed while committing and nobody can say what happened.
        """
        ...

    def find_commit(self, run: str, after: int = -1) -> int | None:
        """The version later than `after` that the commit of that run made; None: no entry of the log says so."""
        ...

    def has_entries(self, after: int, until: int) -> bool:
        """Whether the log still has the entries of all versions later than `after`, up to `until`."""
        ...

    def spent_notes(self, snapshot: Snapshot) -> list[str]:
        """Locations of notes beside the table on files that a snapshot does not have, which spare nobody anything."""
        ...

    def gather_statistics(self, snapshot: Snapshot) -> None:
        """Put together what is kept of files beside the table, without the files that are gone, where that pays."""
        ...

    def discard(self, paths: Sequence[str]) -> None:
        """Delete what was written for staged files that no commit named, under whatever name attempts gave it."""
        ...

    def finish(self) -> None:
        """End a run: checkpoint the log when enough versions are new."""
        ...
