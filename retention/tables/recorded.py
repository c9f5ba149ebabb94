"""Runs on a table as transactions: recorded before and after their commit, and settled after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from retention.core.run_names import started_ns
from retention.delta import entries, log_files
from retention.delta import snapshot as delta_log
from retention.delta.commit import Operation, commit
from retention.delta.entries import Action
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import CommitUnknownError, DamagedError, RetentionError, UsageError
from retention.history.kinds import TableReclaimed, TableRun
from retention.history.record import ABANDONED, DONE, UNKNOWN, Basis
from retention.storage import files
from retention.storage.signals import uninterrupted
from retention.stores.lease import lease
from retention.tables.evidence import forget_evidence
from retention.tables.opened import ENGINE, OpenedTable
from retention.tables.stage import discard, discarded_on_failure

Record = TypeVar("Record", bound=TableRun)


class StagedActions(Protocol):
    """The actions of a run, with the files that it wrote for them."""

    def actions(self, version: int, now_ms: int, snapshot: DeltaSnapshot) -> list[Action]:
        """The actions of a commit; as `delta.commit.Build`."""
        ...

    def written(self) -> list[str]:
        """The paths of the files, in the table's directory."""
        ...


@contextmanager
def maintained(table: OpenedTable) -> Iterator[None]:
    """Hold the table's maintenance lease in the block, with every earlier run settled.

    Raises:
        BusyError: another run holds it.
        RefusedError: a newer release made a run of an unknown kind.
    """
    with lease(table.home, "maintenance", table.clock, wait_s=table.wait_s):
        settle(table)
        yield


def commit_recorded(
    table: OpenedTable,
    before: DeltaSnapshot,
    intent: Record,
    staged: StagedActions,
    operation: str,
    numbers: Mapping[str, int],
) -> Record:
    """Record the intent of a run, commit what it staged, and record and return its outcome.

    Args:
        table: the table, whose lease is held.
        before: the version on which the run is based.
        intent: its record, without what the table says.
        staged: its files; they are deleted if the log shows that it did not commit.
        operation: the operation's name in the table's history.
        numbers: its numbers in the table's history.

    Raises:
        RetentionError: as `delta.commit.commit`.
    """
    basis = Basis(table_id=before.metadata["id"], version=before.version)
    started = started_ns(intent.run, otherwise=0)
    written = staged.written()
    intent = intent.updated(
        stream=table.name,
        basis=basis,
        started_ns=started,
        version_before=before.version,
        staged=written,
    )
    described = Operation(
        name=operation,
        engine=ENGINE,
        parameters={"predicate": "[]"},
        metrics=numbers,
        user_metadata=json.dumps({"run": intent.run, "kind": intent.kind}),
        application=table.application,
    )

    def build(version: int, now_ms: int, current: DeltaSnapshot) -> list[Action]:
        last = {"appId": table.application, "version": started, "lastUpdated": now_ms}
        return [{"txn": last}, *staged.actions(version, now_ms, current)]

    with discarded_on_failure(before.root, written):
        table.history.begin(intent)
    try:
        with uninterrupted():
            after = commit(before, build, described, table.clock)
            outcome = intent.ended(after.version)
            table.history.finish(outcome)
    except CommitUnknownError:
        raise
    except RetentionError:
        # The error may have come after the entry; only the log can tell whether the files are in use.
        with suppress(RetentionError):
            settle(table)
        raise
    return outcome


def settle(table: OpenedTable) -> None:
    """Give every interrupted run its outcome, and delete the files of those that did not commit.

    Raises:
        RefusedError: a newer release made a run of an unknown kind.
    """
    for intent in table.history.interrupted():
        if isinstance(intent, TableRun):
            table.history.finish(_outcome(table, intent))
        elif isinstance(intent, TableReclaimed):
            # The files that it did not delete are found again.
            table.history.finish(intent.updated(status=DONE, settled=True))


def _outcome(table: OpenedTable, intent: TableRun) -> TableRun:
    """The outcome of an interrupted run: `done`, `abandoned`, or `unknown`, with which its files are kept."""
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
    forget_evidence(table, intent.run)
    return intent.updated(status=ABANDONED, latest_as_of_ns=None)


def _version_of(table: OpenedTable, intent: TableRun, versions: range) -> tuple[int | None, bool]:
    """The version that a run committed, and whether every entry that could be it exists."""
    is_complete = True
    for version in versions:
        place = log_files.entry_place(table.location, version)
        content = files.read_unchanging(place)
        if content is None:
            is_complete = False
            continue
        for action in entries.split(content, place).others:
            transaction: Mapping[str, Any] = action.get("txn") or {}
            if _is_of(intent, transaction.get("appId", ""), transaction.get("version")):
                return version, True
    return None, is_complete


def _is_of(intent: TableRun, application: str, version: object) -> bool:
    """Whether a transaction is that of a run, also if the warehouse was elsewhere then: its id depends on that."""
    return application.startswith(f"{ENGINE}/") and version == intent.started_ns
