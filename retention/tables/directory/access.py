"""The access to directories of Parquet files as tables in place: whole files are moved out of them, and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from retention.apply.reclaim.report import Amount
from retention.core.run_names import started_ns
from retention.core.units import INT64_MAX
from retention.delta.commit import Build, Operation
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import (
    DamagedError,
    RefusedError,
    RetentionError,
    StorageError,
    UsageError,
)
from retention.history.kinds import TableApplied, TableRun, TableUndone
from retention.history.record import ABANDONED, DONE, UNKNOWN
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.tables.dead_files import DeadFiles, amount_of, done_passes
from retention.tables.directory.listing import identity_of
from retention.tables.directory.moves import (
    Move,
    files_aside,
    move_aside,
    move_back,
    moves_of,
    place_aside,
    refuse_unreturnable,
    remove_empty,
    sync_moves,
    take_back,
)
from retention.tables.directory.snapshot import DirectorySnapshot, read_directory
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.records import ChangedFile, read_changes

_PARTLY = "with_rows_that_stay"
"""The reason for which a file stays although limits would remove some of its rows."""
_VERSION = 0
"""A directory has no versions."""


class DirectoryAccess:
    """Directories without a log; as `tables.access.TableAccess`."""

    def read(self, table: OpenedTable) -> DirectorySnapshot:
        """The files of the directory that are complete."""
        columns = table.policy.columns
        bounded = {column for column in (columns.time, columns.expires_at) if column is not None}
        return read_directory(table.location, table.clock(), bounded)

    def read_to_commit(self, table: OpenedTable) -> DirectorySnapshot:
        """The files of the directory that are complete; each is looked at again when it is moved."""
        return self.read(table)

    def planned(self, plan: TablePlan, snapshot: DeltaSnapshot) -> TablePlan:
        """The files of a plan of which every row is removed; others stay with all their rows, and are counted."""
        partly = {_PARTLY: len(plan.cut)} if plan.cut else {}
        unread = snapshot.passed_over if isinstance(snapshot, DirectorySnapshot) else {}
        return replace(plan, removals=tuple(plan.dropped), passed_over={**unread, **partly})

    def commit(
        self,
        table: OpenedTable,
        before: DeltaSnapshot,
        build: Build,
        operation: Operation,
        intent: TableRun,
    ) -> int:
        """Move the files of a run, one after the other; a failure is undone by `settled`.

        Raises:
            StalePlanError: a file is gone, or is another by now.
            RefusedError: a file would replace another.
            StorageError: a file cannot be moved.
        """
        del operation
        # The actions themselves are those of a log; building them asks what permits the run.
        list(build(_VERSION, table.clock() // 10**6, before))
        moves = _moves(table, intent)
        if isinstance(intent, TableUndone):
            move_back(moves)
        else:
            move_aside(table.location, moves)
        return _VERSION

    def exclude(self, table: OpenedTable, intent: TableRun) -> None:
        """Nothing: a directory has no log, and a run moves its files one by one."""

    def settled(self, table: OpenedTable, intent: TableRun) -> TableRun:
        """The outcome by the places of the run's files: an undo is finished, and an unfinished pass taken back.

        Raises:
            UsageError: there is no directory, as when its file system is not mounted.
        """
        identity = identity_of(table.location)
        done = intent.updated(status=DONE, settled=True, version_after=_VERSION)
        try:
            moves = _moves(table, intent)
            if isinstance(intent, TableUndone):
                move_back(moves)
                return done
            if all(move.is_moved for move in moves):
                sync_moves(moves)
                return done
            # Another directory without any of the files does not tell where they are.
            is_same = intent.basis is not None and intent.basis.table_id == identity
            is_known = is_same or any(move.exists for move in moves)
            if take_back(moves) and is_known:
                return intent.updated(status=ABANDONED, latest_as_of_ns=None)
        except (DamagedError, RefusedError):
            pass
        return intent.updated(status=UNKNOWN)

    def unsettled(self, intent: TableRun, error: RetentionError) -> RetentionError:
        """An error that says who takes back the moves of a pass, or finishes those of an undo."""
        rest = "finishes it" if isinstance(intent, TableUndone) else "moves them back"
        reason = str(error).partition("; ")[0]
        return StorageError(
            f"{reason}; some files of run {intent.run} may be moved, and the next run on the table {rest}; free space "
            "or mend what the system objects to, then run the command again"
        )

    def refuse_unrestorable(
        self,
        table: OpenedTable,
        record: TableApplied,
        changed: Sequence[ChangedFile],
        current: DeltaSnapshot,
    ) -> None:
        """Refuse if a removed file is gone, or if another file has its name."""
        del current
        refuse_unreturnable(moves_of(table.location, record.run, changed))

    def place_of_removed(self, table: OpenedTable, run: str, path: str) -> str:
        """The place aside, until an undo moves the file back."""
        aside = place_aside(table.location, run, path)
        return files.join(table.location, path) if files.length(aside) is None else aside

    def dead_files(self, table: OpenedTable) -> DeadFiles:
        """The files aside of passes that are done; those of a run of unknown outcome are not ours to delete."""
        cutoff_ns = table.clock() - table.settings.grace_ns
        going: dict[str, int] = {}
        staying = Amount()
        passes: set[str] = set()
        for passed in done_passes(table):
            aside = files_aside(table.location, passed.run)
            if started_ns(passed.run, INT64_MAX) < cutoff_ns:
                going |= aside
            elif aside:
                staying += amount_of(aside)
                passes.add(passed.run)
        kept = {"grace": staying} if passes else {}
        return DeadFiles(table.settings.grace_ns, going, kept, passes)

    def delete_dead(self, places: Collection[str]) -> None:
        """Delete files aside, with the directories that are empty then."""
        files.delete(sorted(places))
        reached(Step.DEAD_DELETED)
        remove_empty(places)

    def refuse_erasure(self, table: OpenedTable) -> None:
        """Refuse: others may read a file while rows are taken out of it.

        Raises:
            RefusedError: always.
        """
        raise RefusedError(
            f"{table.name}: a directory of Parquet files has no log, so that no row can be taken out of a file while "
            f"others read it; nothing was changed; let no program read or write {table.location}, replace the files "
            "by copies without the rows, and delete them, or make it a Delta table"
        )

    def named_in_sql(self, table: OpenedTable) -> str:
        """Nothing: SQL has no statement that moves whole files.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{table.name}: no statement of SQL removes rows from a directory of Parquet files; `plan {table.name} "
            "--rows FILE` lists them"
        )


def _moves(table: OpenedTable, intent: TableRun) -> list[Move]:
    """The files that a run moves, where the table is now: a lake that was moved has its files aside with it."""
    run = intent.undoes if isinstance(intent, TableUndone) else intent.run
    return moves_of(table.location, run, read_changes(table, run))
