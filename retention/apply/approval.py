"""Approval of a pass by a person: the plans that need it, and the check that a plan stays within it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from retention.config.keeping import KeepingSettings
from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.errors import RefusedError, StalePlanError
from retention.history.report import RunReport
from retention.history.runs import History
from retention.plan.plan import Plan


@dataclass(frozen=True)
class Approved:
    """The numbers of a plan that a person has approved."""

    messages: int
    bytes: int
    by_rule: Mapping[str, int]
    """Messages per removing rule."""
    digest: str
    """SHA-256 of the approved report; it identifies the approval, which can be spent once."""


def approval_need(settings: KeepingSettings, plan: Plan) -> str | None:
    """The reason why a person has to approve a plan before a job may apply it; None: no approval is needed."""
    bounds = settings.approve
    if bounds is None:
        return None
    messages, size = plan.removed_messages, plan.removed_bytes
    if bounds.above_messages is not None and messages > bounds.above_messages:
        most = "none" if bounds.above_messages == 0 else f"no more than {bounds.above_messages:,}"
        return f"would remove {counted(messages, 'message')}, and `approve` lets a job remove {most} by itself"
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
    limit = (approved or {}).get(opened.name)
    spending = None if limit is None else history.spending(limit.digest)
    if spending is None:
        return None
    undone_by = history.undone_by(spending.run)
    if undone_by is not None:
        raise RefusedError(
            f"{opened.name}: the approved report was spent by run {spending.run}, which run {undone_by} undid; nothing "
            "was removed; plan again with jobs/plan.py, and have that report approved"
        )
    if not spending.is_done:
        raise RefusedError(
            f"{opened.name}: the approved report may have been spent by run {spending.run}, whose outcome "
            "is no longer on record; nothing was removed; plan again with jobs/plan.py, and have that report approved"
        )
    version = -1 if spending.version_after is None else spending.version_after
    return replace(
        RunReport.of_nothing(opened.name, as_of_ns),
        run=spending.run,
        plan_id=spending.plan_id or "",
        version_before=version,
        version_after=version,
        spent_by=spending.run,
    )


def spend(
    opened: OpenedStream, history: History, plan: Plan, approved: Mapping[str, Approved] | None
) -> Approved | None:
    """The approval that a plan spends when it is committed; None: it needs none, or removes nothing.

    Args:
        opened: the stream.
        history: its runs, read after the table on which the plan is committed was opened.
        plan: the plan.
        approved: the approvals, by stream.

    Raises:
        StalePlanError: another run is spending the same approval.
    """
    limit = (approved or {}).get(opened.name)
    if limit is None or not plan.removed_messages:
        return None
    spending = history.spending(limit.digest)
    rival = history.about_to_spend(limit.digest) if spending is None else spending.run
    if rival is not None:
        raise StalePlanError(
            f"{opened.name}: run {rival} is spending the approved report; this one removed nothing; run again"
        )
    return limit


def check_approval(
    settings: KeepingSettings, plan: Plan, approved: Mapping[str, Approved] | None
) -> None:
    """Refuse a plan that lacks a required approval, or removes more than was approved.

    Args:
        settings: those of the plan's stream.
        plan: the plan of a pass.
        approved: the approvals, by stream; None: a person applies the plan.

    Raises:
        RefusedError: with the numbers.
    """
    if approved is None:
        return
    limit = approved.get(plan.header.stream)
    if limit is not None:
        _check_within(plan, limit)
        return
    reason = approval_need(settings, plan)
    if reason is not None:
        raise RefusedError(
            f"{plan.header.stream}: {reason}; nothing was removed; have the report of jobs/plan.py approved "
            f"and give it to jobs/retain.py with --approved, "
            f"or apply it yourself: {command('apply', plan.header.stream)}"
        )


def _check_within(plan: Plan, limit: Approved) -> None:
    beyond = [
        f"{count:,} instead of {limit.by_rule.get(rule, 0):,} by {rule}"
        for rule, count in plan.by_rule.items()
        if count > limit.by_rule.get(rule, 0)
    ]
    if plan.removed_bytes > limit.bytes:
        beyond.append(f"{plan.removed_bytes:,} instead of {counted(limit.bytes, 'byte')}")
    if beyond:
        raise RefusedError(
            f"{plan.header.stream}: would remove more than was approved ({counted(limit.messages, 'message')}, "
            f"{counted(limit.bytes, 'byte')}): {', '.join(beyond)}; nothing was removed; plan again, and have that "
            "plan approved"
        )
