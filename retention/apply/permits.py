"""The permission of a pass: guards that apply when it commits, and an approval that its commit spends."""

from __future__ import annotations

from dataclasses import dataclass

from retention.apply.approval import spend
from retention.apply.commit_guards import guards_at_commit
from retention.apply.guards import Guards
from retention.context.context import OpenedStream
from retention.core.table_requirements import AssertLastRun, TableRequirement
from retention.history.record import SpentApproval
from retention.history.runs import History
from retention.plan.plan import Plan
from retention.ports import Snapshot


@dataclass(frozen=True)
class Permit:
    """The permission to carry out one plan."""

    approval: SpentApproval | None = None
    """The approval that its commit spends."""
    requirements: tuple[TableRequirement, ...] = ()
    """Conditions of the commit."""


def permit_of(
    opened: OpenedStream,
    history: History,
    plan: Plan,
    snapshot: Snapshot,
    run: str,
    guards: Guards | None,
) -> Permit:
    """The permission of a plan on the version of the table on which it will be committed.

    Args:
        opened: the stream.
        history: its runs.
        plan: the plan.
        snapshot: the version.
        run: the run that carries out the plan.
        guards: the refusals that the caller lifts, and a person's approvals; None: a person requested the removal.

    Raises:
        StalePlanError: another run is spending the same approval.
    """
    if guards is None:
        return Permit()
    requirements = tuple(guards_at_commit(opened, plan, snapshot, guards))
    approved = spend(opened.name, history, plan.removed_messages, guards.approved)
    if approved is None:
        return Permit(None, requirements)
    # A concurrent run that spends it commits a run of its own: the next read of the history shows it.
    alone = AssertLastRun(snapshot.counters.last_run_ns)
    approval = SpentApproval(digest=approved.digest, stream=opened.name, run=run)
    return Permit(approval, (*requirements, alone))
