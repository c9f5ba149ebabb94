"""Runs on a table as transactions: recorded before and after their commit, and settled after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from retention.core.run_names import started_ns
from retention.delta.commit import Operation
from retention.delta.entries import ENGINE, Action
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import CommitUnknownError, RetentionError
from retention.history.kinds import TableReclaimed, TableRun
from retention.history.record import ABANDONED, DONE, Basis
from retention.storage.signals import uninterrupted
from retention.stores.lease import lease
from retention.stores.pauses import refuse_paused
from retention.tables.access import access_of
from retention.tables.committing import forget_committing, refuse_forgotten
from retention.tables.evidence import forget_evidence
from retention.tables.opened import OpenedTable
from retention.tables.records import write_digests
from retention.tables.stage import discarded_on_failure

Record = TypeVar("Record", bound=TableRun)


class StagedActions(Protocol):
    """The actions of a run, with the files that it wrote for them."""

    def actions(self, version: int, now_ms: int, snapshot: DeltaSnapshot) -> list[Action]:
        """The actions of a commit; as `delta.commit.Build`."""
        ...

    def written(self) -> list[str]:
        """The paths of the files, in the table's directory."""
        ...

    def digests(self) -> Mapping[str, str]:
        """Path of each data file among them → the SHA-256 of its bytes."""
        ...


@dataclass(frozen=True)
class Announced:
    """Staged actions of a run in `committing`, which are refused if others settled it meanwhile."""

    table: OpenedTable
    run: str
    staged: StagedActions

    def actions(self, version: int, now_ms: int, snapshot: DeltaSnapshot) -> list[Action]:
        """The actions of a commit of this version; as `delta.commit.Build`.

        Raises:
            BusyError: others settled the run.
        """
        refuse_forgotten(self.table, self.run)
        return self.staged.actions(version, now_ms, snapshot)

    def digests(self) -> Mapping[str, str]:
        """The digests of the staged files."""
        return self.staged.digests()

    def written(self) -> list[str]:
        """The paths of the files that are written, in the table's directory."""
        return self.staged.written()


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


@contextmanager
def removing(table: OpenedTable) -> Iterator[None]:
    """Hold the table's maintenance lease, as `maintained`, in a block that removes rows or deletes removed files.

    Raises:
        RefusedError: as `maintained`; or a person has paused removals.
        BusyError, DamagedError, StorageError: as `maintained` and `stores.pauses.refuse_paused`.
    """
    with maintained(table):
        refuse_paused(table.warehouse, table.home, table.name)
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
    intent = table.history.chained(intent, None)
    with discarded_on_failure(before.root, written):
        write_digests(table, intent.run, staged.digests())
        link = table.history.begin(intent)
    described = Operation(
        name=operation,
        engine=ENGINE,
        parameters={"predicate": "[]"},
        metrics=numbers,
        user_metadata=json.dumps({"run": intent.run, "kind": intent.kind, "link": link}),
        application=table.application,
    )

    def build(version: int, now_ms: int, current: DeltaSnapshot) -> list[Action]:
        last = {"appId": table.application, "version": started, "lastUpdated": now_ms}
        return [{"txn": last}, *staged.actions(version, now_ms, current)]

    try:
        with uninterrupted():
            version = access_of(table).commit(table, before, build, described, intent)
            outcome = intent.ended(version)
            table.history.finish(outcome)
    except CommitUnknownError:
        raise
    except RetentionError as error:
        # The error may have come after the entry; only the log can tell whether the files are in use.
        return _settled_outcome(table, intent, error)
    return outcome


def _settled_outcome(table: OpenedTable, intent: Record, error: RetentionError) -> Record:
    """The outcome of a run that ended with an error, if it has committed after all.

    Raises:
        RetentionError: the error, if the run has not committed, or none can tell yet.
    """
    try:
        settle(table, failed=intent.run)
        outcome = table.history.done(intent.run)
    except RetentionError as unsettled:
        raise access_of(table).unsettled(intent, error) from unsettled
    if isinstance(outcome, type(intent)) and outcome.is_done and outcome.version_after is not None:
        return outcome
    raise error


def settle_interrupted(table: OpenedTable) -> None:
    """Settle interrupted runs before a plan is made: a directory lacks the files of a killed pass until then.

    Raises:
        BusyError, RefusedError: as `maintained`.
    """
    if table.history.interrupted():
        with maintained(table):
            pass


def settle(table: OpenedTable, failed: str | None = None) -> None:
    """Give every interrupted run its outcome, and delete the files of those that did not commit.

    Args:
        table: the table, whose lease is held.
        failed: a run of this process, which commits nothing later.

    Raises:
        RefusedError: a newer release made a run of an unknown kind.
        RetentionError: as `TableAccess.exclude`.
    """
    for intent in table.history.interrupted():
        if isinstance(intent, TableRun):
            if intent.run != failed:
                access_of(table).exclude(table, intent)
            outcome = access_of(table).settled(table, intent)
            if outcome.status == ABANDONED:
                forget_evidence(table, intent.run)
            table.history.finish(outcome)
        elif isinstance(intent, TableReclaimed):
            # The files that it did not delete are found again.
            table.history.finish(intent.updated(status=DONE, settled=True))
    forget_committing(table)
