"""The access to Delta tables in place: their log is read, gets the entries of runs, and settles killed ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from retention.core.wording import counted
from retention.delta import entries, vectors
from retention.delta import snapshot as delta_log
from retention.delta.commit import Build, Operation, commit
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.stored_entries import stored_entry
from retention.errors import DamagedError, RefusedError, RetentionError, UsageError
from retention.history.kinds import TableApplied, TableRun
from retention.history.record import ABANDONED, DONE, UNKNOWN
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores import lease
from retention.tables.dead_files import DeadFiles, dead_files
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.records import ChangedFile
from retention.tables.redefined import refuse_redefined
from retention.tables.rivals import refuse_rivals
from retention.tables.stage import discard


class DeltaAccess:
    """Delta tables; as `tables.access.TableAccess`."""

    def read(self, table: OpenedTable) -> DeltaSnapshot:
        """The newest version of the table's log."""
        return delta_log.read(table.location)

    def read_to_commit(self, table: OpenedTable) -> DeltaSnapshot:
        """The newest version, if no rival can overwrite a commit after it.

        Raises:
            RefusedError: as `rivals.refuse_rivals`.
        """
        # A listing may lack the newest entries, even that of the run.
        current = delta_log.advance(delta_log.read(table.location))
        refuse_rivals(table, current)
        return current

    def planned(self, plan: TablePlan, snapshot: DeltaSnapshot) -> TablePlan:
        """The plan: files lose some of their rows by a vector, or by a copy."""
        del snapshot
        return plan

    def commit(
        self,
        table: OpenedTable,
        before: DeltaSnapshot,
        build: Build,
        operation: Operation,
        intent: TableRun,
    ) -> int:
        """Commit one entry; as `delta.commit.commit`."""
        del intent
        return commit(before, build, operation, table.clock).version

    def exclude(self, table: OpenedTable, intent: TableRun) -> None:
        """Commit an entry without actions: the put of a process that stands still before it finds its version taken."""
        if lease.can_expire(table.home) and intent.basis is not None:
            try:
                current = delta_log.advance(delta_log.read(table.location))
            except (UsageError, DamagedError):
                return
            if current.metadata["id"] == intent.basis.table_id:
                settling = json.dumps({"settles": intent.run})
                operation = Operation("SETTLE", entries.ENGINE, user_metadata=settling)
                commit(current, lambda *_: (), operation, table.clock)

    def settled(self, table: OpenedTable, intent: TableRun) -> TableRun:
        """The outcome by the table's log; the files of a run that did not commit are deleted."""
        try:
            current = delta_log.read(table.location)
        except (UsageError, DamagedError):
            return intent.updated(status=UNKNOWN)
        if intent.basis is None or intent.basis.table_id != current.metadata["id"]:
            return intent.updated(status=UNKNOWN)
        versions = range(intent.basis.version + 1, current.version + 1)
        version, is_complete = _version_of(table, intent, versions)
        if version is not None:
            return intent.updated(status=DONE, settled=True, version_after=version)
        if any(_is_of(intent, name, last) for name, last in current.transactions.items()):
            return intent.updated(status=DONE, settled=True)
        if not is_complete:
            return intent.updated(status=UNKNOWN)
        discard(table.location, intent.staged)
        return intent.updated(status=ABANDONED, latest_as_of_ns=None)

    def unsettled(self, intent: TableRun, error: RetentionError) -> RetentionError:
        """The error itself: an entry is in the log, or it is not."""
        del intent
        return error

    def refuse_unrestorable(
        self,
        table: OpenedTable,
        record: TableApplied,
        changed: Sequence[ChangedFile],
        current: DeltaSnapshot,
    ) -> None:
        """Refuse if others redefined the table or may have restored rows, or if a file is gone."""
        refuse_redefined(table, record, current)
        _refuse_restored(table, record, changed, current)
        _refuse_missing(table, record.run, changed)

    def place_of_removed(self, table: OpenedTable, run: str, path: str) -> str:
        """The place in the table, where the file stays until a VACUUM or a reclaim."""
        del run
        return files.join(table.location, path)

    def dead_files(self, table: OpenedTable) -> DeadFiles:
        """The files whose tombstones are ours; as `dead_files.dead_files`."""
        return dead_files(table)

    def delete_dead(self, places: Collection[str]) -> None:
        """Delete files."""
        files.delete(sorted(places))
        reached(Step.DEAD_DELETED)

    def refuse_erasure(self, table: OpenedTable) -> None:
        """Nothing: a commit takes rows out of files."""

    def named_in_sql(self, table: OpenedTable) -> str:
        """The table as Spark SQL names it, by its directory."""
        location = table.location.replace("`", "``")
        return f"delta.`{location}`"


def _version_of(table: OpenedTable, intent: TableRun, versions: range) -> tuple[int | None, bool]:
    """The version that a run committed, and whether every entry that could be it exists."""
    is_complete = True
    for version in versions:
        entry = stored_entry(table.location, version)
        is_complete &= entry is not None
        for action in () if entry is None else entry.others():
            transaction: Mapping[str, Any] = action.get("txn") or {}
            if _is_of(intent, transaction.get("appId", ""), transaction.get("version")):
                return version, True
    return None, is_complete


def _is_of(intent: TableRun, application: str, version: object) -> bool:
    """Whether a transaction is that of a run, also if the warehouse was elsewhere then: its id depends on that."""
    return application.startswith(f"{entries.ENGINE}/") and version == intent.started_ns


def _refuse_restored(
    table: OpenedTable, record: TableApplied, changed: Sequence[ChangedFile], current: DeltaSnapshot
) -> None:
    """Refuse if others added a removed file again: its rows may be in the table, and would be twice."""
    before = {unquote(change.before["path"]) for change in changed if change.is_whole_or_copied}
    for version in range(record.committed_version + 1, current.version + 1):
        entry = stored_entry(table.location, version)
        if entry is None:
            raise RefusedError(
                f"{table.name}: version {version} of the table's log is gone, so that nobody can tell what others "
                f"restored after run {record.run}; nothing was changed; restore the rows from a copy"
            )
        for action in entry.actions():
            add = action.get("add") or {}
            if unquote(add.get("path", "")) in before:
                raise RefusedError(
                    f"{table.name}: version {version} added {add['path']} again, which run {record.run} had removed, "
                    "so that rows could come back twice; nothing was changed; remove what came back, or leave it"
                )


def _refuse_missing(table: OpenedTable, run: str, changed: Sequence[ChangedFile]) -> None:
    """Refuse if a file or a vector is gone: the log would accept it, and every later scan would fail."""
    places = {files.join(table.location, unquote(change.before["path"])) for change in changed}
    held = (change.before.get("deletionVector") for change in changed)
    places |= {place for vector in held if vector and (place := _place(table, vector))}
    in_order = sorted(places)
    gone = [
        place for place, size in zip(in_order, files.lengths(in_order), strict=True) if size is None
    ]
    if gone:
        raise RefusedError(
            f"{gone[0]}: this file is gone, as after VACUUM or reclaim ({counted(len(gone), 'file')} of run {run}), "
            "so that the run cannot be undone; nothing was changed; restore the rows from a copy"
        )


def _place(table: OpenedTable, vector: Mapping[str, Any]) -> str | None:
    return vectors.vector_location(table.location, vector)
