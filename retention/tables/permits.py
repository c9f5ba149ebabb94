"""The permission of a pass over a table: its instant, its policy, the guards of the table, and an approval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from retention.apply.approval import PlannedLoss, check_approval, spend, spent_before
from retention.apply.guards import (
    Guards,
    check_instant,
    permitted,
    refuse_other_policy,
    superseding,
)
from retention.config.keeping import RunSettings
from retention.core.removal_guards import NO_GUARDS
from retention.core.table_policy import TablePolicy
from retention.delta.entries import Action
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import BusyError, RefusedError, StalePlanError
from retention.history.record import SpentApproval
from retention.rules.removal_guards import GuardFinding, Loss, guard_findings
from retention.tables.bounds import by_path, live_rows
from retention.tables.committing import refuse_forgotten
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.report import TableReport
from retention.tables.stage import StagedRemovals


@dataclass(frozen=True)
class Permit:
    """The permission of one run."""

    run: str
    reason: str | None = None
    """The caller's reason for lifting refusals."""
    approval: SpentApproval | None = None
    """The approval that its commit spends; None: it needs none."""


@dataclass(frozen=True)
class GuardedRemovals:
    """Staged removals that are judged again at the commit, by the rows that the table has then."""

    staged: StagedRemovals
    judge: Callable[[DeltaSnapshot], object]
    """Refuses a run that others settled, and too large a removal."""

    def actions(self, version: int, now_ms: int, snapshot: DeltaSnapshot) -> list[Action]:
        """The actions of a commit of this version; as `delta.commit.Build`.

        Raises:
            BusyError: others settled the run.
            RefusedError: a guard refuses.
        """
        self.judge(snapshot)
        return self.staged.actions(version, now_ms, snapshot)

    def digests(self) -> dict[str, str]:
        """The digests of its copies."""
        return self.staged.digests()

    def written(self) -> list[str]:
        """The paths of the files that are written, in the table's directory."""
        return self.staged.written()


def settled_answer(table: OpenedTable, as_of_ns: int, guards: Guards) -> TableReport | None:
    """The answer for a pass that an earlier run makes unnecessary; None: none does.

    Raises:
        RefusedError: the run that spent the same approval was undone, or its outcome is unknown.
    """
    history, nothing = table.history, nothing_done(table, as_of_ns)
    if (spending := spent_before(table.name, history, guards.approved)) is not None:
        version = -1 if spending.version_after is None else spending.version_after
        return replace(nothing, run=spending.run, version_after=version, spent_by=spending.run)
    if (superseded := superseding(table, history, guards, as_of_ns)) is not None:
        return replace(nothing, superseded_by=superseded)
    return None


def nothing_done(table: OpenedTable, as_of_ns: int) -> TableReport:
    """The report of a table without a run."""
    plan = TablePlan(table.name, table.location, "", -1, as_of_ns, table.policy, (), 0)
    return TableReport("", plan, -1)


def check_plan(table: OpenedTable, plan: TablePlan, guards: Guards) -> None:
    """Refuse a plan of another policy or place, at an instant that may be a mistake, or without its approval.

    Raises:
        StalePlanError: the table's configuration has changed since the plan was made.
        RefusedError: the instant is refused, or the plan removes more than a person has approved.
        BusyError: another run has applied a later instant meanwhile.
    """
    if plan.location != table.location:
        raise StalePlanError(
            f"{table.name}: the table was at {plan.location} when this plan was made, and is at {table.location} now; "
            "nothing was changed; plan again"
        )
    refuse_other_policy(table.name, _by_name(table.policy), _by_name(plan.policy))
    check_instant(table, table.history, plan.as_of_ns, guards, "row")
    check_approval(table.settings, planned_rows(plan), guards.approved)


def planned_rows(plan: TablePlan) -> PlannedLoss:
    """The numbers of a plan that an approval bounds."""
    return PlannedLoss(plan.table, plan.removed_rows, plan.removed_bytes, plan.by_limit, "row")


def permit_of(table: OpenedTable, plan: TablePlan, guards: Guards) -> Permit:
    """The permission of a new run that carries out a plan.

    Raises:
        StalePlanError: another run is spending the same approval.
    """
    run = table.history.name_run(table.clock())
    approved = spend(table.name, table.history, plan.removed_rows, guards.approved)
    if approved is None:
        return Permit(run, guards.reason)
    spent = SpentApproval(digest=approved.digest, stream=table.name, run=run)
    return Permit(run, guards.reason, spent)


def findings_of(
    settings: RunSettings, plan: TablePlan, rows: int | None = None
) -> tuple[GuardFinding, ...]:
    """The guards that a plan exceeds.

    Args:
        settings: those of the table.
        plan: the plan.
        rows: the live rows of the table now; None: as when the plan was made.
    """
    total = max(plan.rows if rows is None else rows, plan.removed_rows)
    loss = Loss(plan.removed_rows, plan.removed_bytes, total, "row")
    return guard_findings(settings.guards.rule(), loss)


def judge(
    table: OpenedTable, plan: TablePlan, guards: Guards, current: DeltaSnapshot
) -> tuple[GuardFinding, ...]:
    """The guards that a plan exceeds in the table as it is, which warn or are lifted.

    Raises:
        RefusedError: one refuses, and the caller does not lift that.
    """
    if table.settings.guards.rule() == NO_GUARDS or plan.is_empty:
        return ()
    rows = int(live_rows(current, by_path(current)).sum())
    return permitted(table.name, findings_of(table.settings, plan, rows), guards)


def guarded(
    table: OpenedTable, plan: TablePlan, guards: Guards, permit: Permit, staged: StagedRemovals
) -> GuardedRemovals:
    """Staged removals as they are committed: if nobody settled the run, and guards permit them by the rows then."""

    def check(current: DeltaSnapshot) -> None:
        refuse_forgotten(table, permit.run)
        if not guards.allow_large:
            judge(table, plan, guards, current)

    return GuardedRemovals(staged, check)


def refusal_of(table: OpenedTable, plan: TablePlan, guards: Guards) -> str | None:
    """The sentence with which a plan just made would be refused if it were applied now; None: it would be accepted."""
    try:
        table.history.refuse_newer()
        check_instant(table, table.history, plan.as_of_ns, guards, "row")
        permitted(table.name, findings_of(table.settings, plan), guards)
    except BusyError:  # another run was faster: planned again, it is not refused
        return None
    except RefusedError as error:
        return str(error)
    return None


def _by_name(policy: TablePolicy) -> dict[str, object]:
    """The settings of a policy that decide, by name."""
    written = policy.as_json()
    return {**written["columns"], **written["limits"], "policies": written["policies"]}
