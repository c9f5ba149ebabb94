"""The guards that the plan of a pass exceeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.core.removal_guards import NO_GUARDS, RemovalGuards
from retention.plan.plan import Plan

if TYPE_CHECKING:
    from retention.rules.removal_guards import GuardFinding


def findings_of(guards: RemovalGuards, plan: Plan) -> tuple[GuardFinding, ...]:
    """List the guards that a plan exceeds; none for a requested removal.

    Raises:
        DamagedError: a saved plan's files cannot be decoded.
    """
    if plan.header.request is not None or guards == NO_GUARDS:
        return ()
    from retention.plan.loss import loss_of
    from retention.rules.removal_guards import guard_findings

    return guard_findings(guards, loss_of(plan))
