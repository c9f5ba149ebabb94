"""A pass over a table in place: a plan becomes one commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from retention.core.units import format_instant
from retention.delta.features import refuse_unsafe
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import RefusedError, StalePlanError
from retention.history.kinds import TableApplied
from retention.stores.checks.exclusion import refuse_without_exclusion
from retention.tables.access import access_of
from retention.tables.opened import OpenedTable
from retention.tables.plan import FileRemovals, TablePlan
from retention.tables.recorded import commit_recorded, maintained
from retention.tables.records import write_changes
from retention.tables.stage import StagedRemovals, discarded_on_failure, stage


@dataclass(frozen=True)
class Permissions:
    """Permissions that an operator gives for one pass."""

    future: bool = False
    """An instant later than the clock."""
    rewind: bool = False
    """An instant earlier than that of the last pass."""


@dataclass(frozen=True)
class TableReport:
    """The outcome of a pass."""

    run: str
    """Empty if nothing was to go, so that nothing was committed."""
    plan: TablePlan
    version_after: int
    bytes_written: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The report's entry in the JSON output, with the plan's numbers."""
        return {
            **numbers_of(self.plan),
            "run": self.run,
            "version_after": self.version_after,
            "bytes_written": self.bytes_written,
            "seconds": self.seconds,
        }


def numbers_of(plan: TablePlan) -> dict[str, Any]:
    """The numbers of a plan, as JSON values."""
    return {
        "table": plan.table,
        "location": plan.location,
        "plan_id": plan.plan_id,
        "removed_rows": plan.removed_rows,
        "removed_bytes": plan.removed_bytes,
        "by_rule": plan.by_limit,
        "files": {
            "dropped": len(plan.dropped),
            "cut": len(plan.cut),
            "kept": plan.files - len(plan.removals),
        },
        "rows_without_time": plan.unlimited.without_time,
        "rows_without_key": plan.unlimited.without_key,
        "rows_without_size": plan.unlimited.without_size,
        "rows_ahead_of_clock": plan.unlimited.ahead,
        "files_read": plan.files_read,
        "bytes_read": plan.bytes_read,
        "files_passed_over": dict(plan.passed_over),
        "version_before": plan.version,
    }


def apply_plan(
    table: OpenedTable,
    plan: TablePlan,
    permissions: Permissions = Permissions(),
    step: Callable[[FileRemovals], None] = lambda removals: None,
) -> TableReport:
    """Carry out a plan, in one commit to the table's log.

    Args:
        table: the table.
        plan: the plan; its files must be live, with the same vectors.
        permissions: what is allowed this once.
        step: called after each file.

    Raises:
        RefusedError: the table, or the plan's instant, is refused.
        StalePlanError: another table is there, or a file of the plan is gone or has another vector.
        BusyError, CommitUnknownError, DamagedError, VerificationError, StorageError: nothing was changed, or it is
            unknown (the next run finds out).
    """
    started = time.monotonic()
    with maintained(table):
        _refuse_instant(table, plan, permissions)
        current = access_of(table).read(table)
        _refuse_table(plan, current)
        refuse_without_exclusion(table.location)
        if plan.is_empty:
            return TableReport("", plan, current.version, seconds=time.monotonic() - started)
        staged = stage(current, plan.removals, step)
        intent = _intent(table, plan, staged)
        with discarded_on_failure(table.location, staged.written()):
            write_changes(table, intent.run, staged.changed)
        numbers = {
            "numRemovedFiles": len(plan.dropped),
            "numDeletedRows": plan.removed_rows,
            "numAddedFiles": len(staged.copies),
        }
        version = commit_recorded(
            table, current, intent, staged, "DELETE", numbers
        ).committed_version
    seconds = time.monotonic() - started
    return TableReport(intent.run, plan, version, staged.bytes_written(), seconds)


def _intent(table: OpenedTable, plan: TablePlan, staged: StagedRemovals) -> TableApplied:
    """The record of a pass before its commit."""
    return TableApplied(
        run=table.history.name_run(table.clock()),
        as_of_ns=plan.as_of_ns,
        plan_id=plan.plan_id,
        location=table.location,
        latest_as_of_ns=max(plan.as_of_ns, table.history.last_as_of_ns() or 0),
        policy=plan.policy.as_json(),
        removed_rows=plan.removed_rows,
        removed_bytes=plan.removed_bytes,
        by_rule=plan.by_limit,
        files_dropped=len(plan.dropped),
        files_cut=len(plan.cut),
        files_read=plan.files_read,
        bytes_read=plan.bytes_read,
        bytes_written=staged.bytes_written(),
    )


def _refuse_table(plan: TablePlan, current: DeltaSnapshot) -> None:
    refuse_unsafe(current)
    if plan.table_id != current.metadata["id"]:
        raise StalePlanError(
            f"{plan.location}: another table is there since the plan was made; nothing was changed; plan again"
        )


def _refuse_instant(table: OpenedTable, plan: TablePlan, permissions: Permissions) -> None:
    """Refuse an instant that a mistake may have set: rows that went too early come back only by an undo."""
    if plan.as_of_ns > table.clock() and not permissions.future:
        raise RefusedError(
            f"{table.name}: the plan is as of {format_instant(plan.as_of_ns)}, which is later than the clock; nothing "
            "was changed; plan as of now, or repeat it with --allow-future"
        )
    last = table.history.last_as_of_ns()
    if last is not None and plan.as_of_ns < last and not permissions.rewind:
        raise RefusedError(
            f"{table.name}: the last pass was as of {format_instant(last)}, and the plan is as of an earlier instant, "
            f"{format_instant(plan.as_of_ns)}; nothing was changed; plan as of now, or repeat it with --allow-rewind"
        )
