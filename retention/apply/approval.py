"""Approval of a pass by a person: the plans that need it, and the check that a plan stays within it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retention.config.keeping import RunSettings
from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.errors import RefusedError, StalePlanError
from retention.history.kinds import PermittedRun
from retention.history.report import RunReport
from retention.history.runs import History
from retention.plan.plan import Plan

if TYPE_CHECKING:
    from retention.rules.removal_guards import Unit


@dataclass(frozen=True)
class Approved:
    """The numbers of a plan that a person has approved."""

    messages: int
    bytes: int
    by_rule: Mapping[str, int]
    """Messages per removing rule."""
    digest: str
    """SHA-256 of the approved report; it identifies the approval, which can be spent once."""


@dataclass(frozen=True)
class PlannedLoss:
    """The numbers of a plan that an approval bounds."""

    name: str
    """The name of its stream or table."""
    removed: int
    bytes: int
    by_rule: Mapping[str, int]
    """The removed messages or rows per rule."""
    unit: Unit = "message"


def planned_loss(plan: Plan) -> PlannedLoss:
    """The numbers of a plan of a stream."""
    return PlannedLoss(plan.header.stream, plan.removed_messages, plan.removed_bytes, plan.by_rule)


def approval_need(settings: RunSettings, plan: PlannedLoss) -> str | None:
    """The reason why a person has to approve a plan before a job may apply it; None: no approval is needed."""
    bounds = settings.approve
    if bounds is None:
        return None
    messages, size = plan.removed, plan.bytes
    if bounds.above is not None and messages > bounds.above:
        most = "none" if bounds.above == 0 else f"no more than {bounds.above:,}"
        return f"would remove {counted(messages, plan.unit)}, and `approve` lets a job remove {most} by itself"
    if bounds.above_bytes is not None and size > bounds.above_bytes:
        most = f"no more than {bounds.above_bytes:,}"
        return f"would remove {counted(size, 'byte')}, and `approve` lets a job remove {most} by itself"
    return None


def spent_answer(
    opened: OpenedStream,
    history: History,
    approved: Mapping[str, Approved] | None,
    as_of_ns: int,
) -> RunReport | None:
    """Answer for a pass with an approval that was spent before; nothing is repeated. None: it is unspent.

    Raises:
        RefusedError: the run that spent it was undone, or its outcome is unknown.
    """
    spending = spent_before(opened.name, history, approved)
    if spending is None:
        return None
    version = -1 if spending.version_after is None else spending.version_after
    return replace(
        RunReport.of_nothing(opened.name, as_of_ns),
        run=spending.run,
        plan_id=spending.plan_id or "",
        version_before=version,
        version_after=version,
        spent_by=spending.run,
    )


def spent_before(
    name: str, history: History, approved: Mapping[str, Approved] | None
) -> PermittedRun | None:
    """The run in effect that spent the approval of a stream or table; None: it is unspent, or there is none.

    Raises:
        RefusedError: the run that spent it was undone, or its outcome is unknown.
    """
    limit = (approved or {}).get(name)
    spending = None if limit is None else history.spending(limit.digest)
    if spending is None:
        return None
    undone_by = history.undone_by(spending.run)
    if undone_by is not None:
        raise RefusedError(
            f"{name}: the approved report was spent by run {spending.run}, which run {undone_by} undid; nothing "
            "was removed; plan again with jobs/plan.py, and have that report approved"
        )
    if not spending.is_done:
        raise RefusedError(
            f"{name}: the approved report may have been spent by run {spending.run}, whose outcome "
            "is no longer on record; nothing was removed; plan again with jobs/plan.py, and have that report approved"
        )
    return spending


def spend(
    name: str, history: History, removed: int, approved: Mapping[str, Approved] | None
) -> Approved | None:
    """The approval that a plan spends when it is committed; None: it needs none, or removes nothing.

    Args:
        name: the name of its stream or table.
        history: its runs, read after the table on which the plan is committed was opened.
        removed: the number of messages or rows that it removes.
        approved: the approvals, by stream.

    Raises:
        StalePlanError: another run is spending the same approval.
    """
    limit = (approved or {}).get(name)
    if limit is None or not removed:
        return None
    spending = history.spending(limit.digest)
    rival = history.about_to_spend(limit.digest) if spending is None else spending.run
    if rival is not None:
        raise StalePlanError(
            f"{name}: run {rival} is spending the approved report; this one removed nothing; run again"
        )
    return limit


def check_approval(
    settings: RunSettings, plan: PlannedLoss, approved: Mapping[str, Approved] | None
) -> None:
    """Refuse a plan that lacks a required approval, or removes more than was approved.

    Args:
        settings: those of the plan's stream or table.
        plan: the plan of a pass.
        approved: the approvals, by stream; None: a person applies the plan.

    Raises:
        RefusedError: with the numbers.
    """
    if approved is None:
        return
    limit = approved.get(plan.name)
    if limit is not None:
        _check_within(plan, limit)
        return
    reason = approval_need(settings, plan)
    if reason is not None:
        raise RefusedError(
            f"{plan.name}: {reason}; nothing was removed; have the report of jobs/plan.py approved "
            f"and give it to jobs/retain.py with --approved, "
            f"or apply it yourself: {command('apply', plan.name)}"
        )


def _check_within(plan: PlannedLoss, limit: Approved) -> None:
    beyond = [
        f"{count:,} instead of {limit.by_rule.get(rule, 0):,} by {rule}"
        for rule, count in plan.by_rule.items()
        if count > limit.by_rule.get(rule, 0)
    ]
    if plan.bytes > limit.bytes:
        beyond.append(f"{plan.bytes:,} instead of {counted(limit.bytes, 'byte')}")
    if beyond:
        raise RefusedError(
            f"{plan.name}: would remove more than was approved ({counted(limit.messages, plan.unit)}, "
            f"{counted(limit.bytes, 'byte')}): {', '.join(beyond)}; nothing was removed; plan again, and have that "
            "plan approved"
        )
