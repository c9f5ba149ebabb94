"""Reasons why a plan removes messages, in a few words with their numbers."""

from __future__ import annotations

from retention.plan.plan import Plan
from retention.rules.reasons import reason_of


def reason(plan: Plan, rule: str) -> str:
    """The reason why a rule removes messages, with its numbers."""
    if plan.header.request is not None:
        return plan.header.request.wording
    return reason_of(rule, plan.header.policy, plan.header.as_of_ns)
