"""Approval of a pass by a person: which plans need it, and which stay within what was approved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retention.config.keeping import KeepingSettings
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.errors import RefusedError
from retention.plan.plan import Plan


@dataclass(frozen=True)
class Approved:
    """The numbers of a plan that a person has approved."""

    messages: int
    bytes: int
    by_rule: Mapping[str, int]
    """Messages by the rule that takes them."""


def approval_need(settings: KeepingSettings, plan: Plan) -> str | None:
    """The reason why a person has to approve a plan before a job may apply it; None: nobody has to."""
    bounds = settings.approve
    if bounds is None:
        return None
    messages, size = plan.removed_messages, plan.removed_bytes
    if bounds.above_messages is not None and messages > bounds.above_messages:
        most = "none" if bounds.above_messages == 0 else f"no more than {bounds.above_messages:,}"
        return f"{counted(messages, 'message')} would go, and `approve` lets a job remove {most} by itself"
    if bounds.above_bytes is not None and size > bounds.above_bytes:
        most = f"no more than {bounds.above_bytes:,}"
        return f"{counted(size, 'byte')} would go, and `approve` lets a job remove {most} by itself"
    return None


def check_approval(
    settings: KeepingSettings, plan: Plan, approved: Mapping[str, Approved] | None
) -> None:
    """Refuse a plan that needs an approval which it has not, or takes more than was approved.

    Args:
        settings: those of the plan's stream.
        plan: the plan of a pass.
        approved: what was approved, by stream; None: who applies the plan is a person.

    Raises:
        RefusedError: with the numbers.
    """
    if approved is None:
        return
    limit = approved.get(plan.stream)
    if limit is not None:
        _check_within(plan, limit)
        return
    reason = approval_need(settings, plan)
    if reason is not None:
        raise RefusedError(
            f"{plan.stream}: {reason}; nothing was removed; have the report of jobs/plan.py approved and give it to "
            f"jobs/retain.py with --approved, or apply it yourself: {command('apply', plan.stream)}"
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
            f"{plan.stream}: more would go than was approved ({counted(limit.messages, 'message')}, "
            f"{counted(limit.bytes, 'byte')}): {', '.join(beyond)}; nothing was removed; plan again, and have that "
            f"plan "
            "approved"
        )
