"""A pass over a table in place: a plan becomes one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from retention.apply.guards import Guards, check_instant
from retention.core.json_object import JsonObject
from retention.delta.features import refuse_unsafe
from retention.delta.snapshot import DeltaSnapshot
from retention.engine_port import Engine
from retention.errors import ConflictError, StalePlanError
from retention.history.kinds import TableApplied
from retention.tables.access import access_of
from retention.tables.committing import committing
from retention.tables.erasure_run import go_on_with_erasures
from retention.tables.evidence import write_evidence
from retention.tables.holds import TableHoldRecords, expire_holds, refuse_changed_holds
from retention.tables.opened import OpenedTable
from retention.tables.permits import (
    Permit,
    check_plan,
    guarded,
    judge,
    permit_of,
    settled_answer,
)
from retention.tables.plan import FileRemovals, TablePlan
from retention.tables.planning import plan_table
from retention.tables.recorded import commit_recorded, removing, settle_interrupted
from retention.tables.records import ChangedFile, write_changes
from retention.tables.redefined import refuse_stale_columns
from retention.tables.report import TableReport
from retention.tables.stage import StagedRemovals, discarded_on_failure, stage

_NOTHING_LIFTED = Guards()
_TRIES = 3
"""The number of plans that a pass makes while others change the files of the one before."""


def apply_now(
    table: OpenedTable,
    as_of_ns: int,
    choose_engine: Callable[[int], Engine],
    guards: Guards = _NOTHING_LIFTED,
) -> TableReport:
    """Plan and carry out a pass in one step; planned again if others change files of the plan meanwhile.

    Args:
        table: the table.
        as_of_ns: the instant of the pass, nanoseconds since the epoch.
        choose_engine: the engine that reads a number of bytes.
        guards: the refusals that the caller lifts, and a person's approvals.

    Raises:
        RetentionError: as `plan_table` and `apply_plan`.
    """
    if (answer := settled_answer(table, as_of_ns, guards)) is not None:
        return answer
    check_instant(table, table.history, as_of_ns, guards, "row")
    settle_interrupted(table)
    go_on_with_erasures(table)
    expired = expire_holds(table) or None
    for tries in range(1, _TRIES + 1):
        plan = plan_table(table, as_of_ns, choose_engine)
        try:
            return replace(apply_plan(table, plan, guards), expired_holds=expired)
        except (ConflictError, StalePlanError):
            if tries == _TRIES:
                raise
    raise AssertionError("the last try returns or raises")


def apply_plan(
    table: OpenedTable,
    plan: TablePlan,
    guards: Guards = _NOTHING_LIFTED,
    step: Callable[[FileRemovals], None] = lambda removals: None,
) -> TableReport:
    """Carry out a plan, in one commit to the table's log.

    Args:
        table: the table.
        plan: the plan; its files must be live, with the same vectors.
        guards: the refusals that the caller lifts, and a person's approvals.
        step: called after each file.

    Raises:
        RefusedError: the table, or the plan's instant, is refused; a guard refuses, an approval is missing, or a person
            has paused removals.
        StalePlanError: another table is there, its configuration has changed, or a file of the plan is gone or has
            another vector.
        BusyError, CommitUnknownError, DamagedError, VerificationError, StorageError: nothing was changed, or it is
            unknown (the next run finds out).
    """
    started = time.monotonic()
    with removing(table):
        if (answer := settled_answer(table, plan.as_of_ns, guards)) is not None:
            return answer
        check_plan(table, plan, guards)
        current = access_of(table).read_to_commit(table)
        _refuse_table(plan, current)
        TableHoldRecords(table).place_written()
        refuse_changed_holds(table, plan)
        findings = [each.as_json() for each in judge(table, plan, guards, current)] or None
        if plan.is_empty:
            return TableReport("", plan, current.version, seconds=time.monotonic() - started)
        permit = permit_of(table, plan, guards)
        staged = stage(current, plan.removals, step)
        intent = _intent(table, plan, staged, findings, permit).updated(
            kept_bytes=_kept_bytes(current, staged.changed)
        )
        with discarded_on_failure(table.location, staged.written()):
            records = {
                "changes": write_changes(table, intent.run, staged.changed),
                "evidence": write_evidence(table, intent.run, current, plan.removals),
            }
        intent = intent.updated(records={name: sha for name, sha in records.items() if sha})
        numbers = {
            "numRemovedFiles": len(plan.dropped),
            "numDeletedRows": plan.removed_rows,
            "numAddedFiles": len(staged.copies),
        }
        judged = guarded(table, plan, guards, permit, staged)
        with committing(table, permit.run):
            refuse_changed_holds(table, plan)
            version = commit_recorded(
                table, current, intent, judged, "DELETE", numbers
            ).committed_version
    seconds = time.monotonic() - started
    return TableReport(permit.run, plan, version, staged.bytes_written(), seconds, findings)


def _intent(
    table: OpenedTable,
    plan: TablePlan,
    staged: StagedRemovals,
    findings: list[JsonObject] | None,
    permit: Permit,
) -> TableApplied:
    """The record of a pass before its commit."""
    return TableApplied(
        run=permit.run,
        as_of_ns=plan.as_of_ns,
        plan_id=plan.plan_id,
        location=table.location,
        latest_as_of_ns=max(plan.as_of_ns, table.history.last_as_of_ns() or 0),
        policy=plan.policy.as_json(),
        removed_rows=plan.removed_rows,
        kept_rows=None if plan.rows < plan.removed_rows else plan.rows - plan.removed_rows,
        removed_bytes=plan.removed_bytes,
        by_rule=plan.by_limit,
        files_dropped=len(plan.dropped),
        files_cut=len(plan.cut),
        files_read=plan.files_read,
        bytes_read=plan.bytes_read,
        bytes_written=staged.bytes_written(),
        guards=findings,
        reason=permit.reason,
        approval=permit.approval,
    )


def _kept_bytes(current: DeltaSnapshot, changed: Sequence[ChangedFile]) -> int | None:
    """The bytes of a table's files after a commit that changes some of them; None: it has not all of these."""
    stored = int(pc.sum(current.files["size"], min_count=0).as_py())
    after = sum(int(change.after["size"]) for change in changed if change.after is not None)
    kept = stored - sum(int(change.before["size"]) for change in changed) + after
    return kept if kept >= 0 else None


def _refuse_table(plan: TablePlan, current: DeltaSnapshot) -> None:
    refuse_unsafe(current)
    if plan.table_id != current.metadata["id"]:
        raise StalePlanError(
            f"{plan.location}: another table is there since the plan was made; nothing was changed; plan again"
        )
    refuse_stale_columns(plan, current)
