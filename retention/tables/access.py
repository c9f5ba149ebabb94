"""The access to tables in place, by format: how each is read, how a run commits, and how a killed run is settled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from retention.delta.commit import Build, Operation
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import RetentionError
from retention.history.kinds import TableApplied, TableRun
from retention.tables.dead_files import DeadFiles
from retention.tables.delta_access import DeltaAccess
from retention.tables.directory.access import DirectoryAccess
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.records import ChangedFile


class TableAccess(Protocol):
    """The means to read and change tables of one format."""

    def read(self, table: OpenedTable) -> DeltaSnapshot:
        """The table as it is: its files, its columns, and bounds of the times in each file.

        Raises:
            UsageError: there is none of this format.
            RefusedError, DamagedError, StorageError: it cannot be read.
        """
        ...

    def read_to_commit(self, table: OpenedTable) -> DeltaSnapshot:
        """The table as it is, if a run may change it.

        Raises:
            RefusedError: another program could overwrite the change.
            RetentionError: as `read`.
        """
        ...

    def planned(self, plan: TablePlan, snapshot: DeltaSnapshot) -> TablePlan:
        """The part of a plan that can be carried out."""
        ...

    def commit(
        self,
        table: OpenedTable,
        before: DeltaSnapshot,
        build: Build,
        operation: Operation,
        intent: TableRun,
    ) -> int:
        """Commit the actions of a run whose intent is recorded, and return the table's version after it.

        Raises:
            RetentionError: nothing was changed, or `settled` undoes it; or the outcome is unknown.
        """
        ...

    def exclude(self, table: OpenedTable, intent: TableRun) -> None:
        """Keep an interrupted run from committing later, if its process may stand still just before that.

        Raises:
            RetentionError: as `commit`.
        """
        ...

    def settled(self, table: OpenedTable, intent: TableRun) -> TableRun:
        """The outcome of an interrupted run: `done`, `abandoned`, or `unknown`, with which its files are kept."""
        ...

    def unsettled(self, intent: TableRun, error: RetentionError) -> RetentionError:
        """The error of a run that could not be settled after an error of its commit."""
        ...

    def refuse_unrestorable(
        self,
        table: OpenedTable,
        record: TableApplied,
        changed: Sequence[ChangedFile],
        current: DeltaSnapshot,
    ) -> None:
        """Refuse an undo that would restore rows twice, or cannot restore them.

        Raises:
            RefusedError: a file is gone, or others have restored one.
        """
        ...

    def place_of_removed(self, table: OpenedTable, run: str, path: str) -> str:
        """The place where a file is, or was, that a run removed whole.

        Args:
            table: the table.
            run: the run.
            path: the file's decoded path in the table.
        """
        ...

    def dead_files(self, table: OpenedTable) -> DeadFiles:
        """The files that our passes removed, by their fate.

        Raises:
            UsageError: there is no table.
            DamagedError, StorageError: the table, or the record of a pass, cannot be read.
        """
        ...

    def delete_dead(self, places: Collection[str]) -> None:
        """Delete files that our passes removed."""
        ...

    def refuse_erasure(self, table: OpenedTable) -> None:
        """Refuse an erasure of rows where only whole files can be removed.

        Raises:
            RefusedError: the table has no log.
        """
        ...

    def named_in_sql(self, table: OpenedTable) -> str:
        """The table as statements of Spark SQL name it.

        Raises:
            UsageError: no statement removes rows from it.
        """
        ...


_ACCESS: dict[str, TableAccess] = {"delta": DeltaAccess(), "parquet": DirectoryAccess()}


def access_of(table: OpenedTable) -> TableAccess:
    """The access to a table of the configured format."""
    return _ACCESS[table.format]
