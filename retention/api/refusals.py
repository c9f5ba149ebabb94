"""Predicted refusals of several plans, before a person is asked about them or waits for them."""

from __future__ import annotations

from collections.abc import Iterable

from retention.api.warehouse import Warehouse
from retention.apply.guards import Guards
from retention.apply.refusals import refusal_of
from retention.core.outcomes import Outcome, ask_concurrently
from retention.plan.plan import Plan
from retention.storage import files


def foretold(
    warehouse: Warehouse, plans: Iterable[Plan], guards: Guards
) -> dict[str, Outcome[str | None]]:
    """Predict, by stream, how `apply` would refuse plans that were just made.

    Args:
        warehouse: the streams.
        plans: of passes, at most one per stream.
        guards: the refusals that the caller lifts.

    Returns:
        Stream → the sentence; None: the plan would be applied.
    """
    by_name = {plan.header.stream: plan for plan in plans}
    outcomes = ask_concurrently(
        by_name,
        lambda name: refusal_of(warehouse.log(name).opened, by_name[name], guards),
        warehouse.clock,
        files.streams_at_once(warehouse.location),
        "looking for refusals",
    )
    return {outcome.stream: outcome for outcome in outcomes}
