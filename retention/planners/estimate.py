"""Estimates: bounds of the effect of a pass, always valid, without opening a data file."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.spans import spans_of
from retention.core.wording import counted
from retention.engines.select import Engines
from retention.errors import RefusedError
from retention.plan.estimate_bounds import Estimate, bounds_of
from retention.plan.estimate_interest import released_bounds
from retention.plan.estimate_ranges import Bounds
from retention.plan.plan import Plan, empty_plan
from retention.plan.remaining import all_remaining
from retention.planners.consumer_protection import protection_of
from retention.planners.context import PlanningContext
from retention.planners.interest import decide_release
from retention.planners.probe import UnopenedRows
from retention.planners.retention import decide
from retention.planners.rows import StreamRows
from retention.planners.table import gather
from retention.planners.topic import plan_topic_table


def estimate(opened: OpenedStream, as_of_ns: int) -> Estimate:
    """Bound all numbers of the plan at `as_of_ns` from statistics alone.

    Raises:
        RefusedError: files appended by another writer have no statistics yet.
    """
    policy = opened.config.policy()
    if not opened.store.exists():
        return _exact(empty_plan(opened.name, as_of_ns, policy))
    snapshot = opened.store.snapshot()
    unread = opened.store.count_undescribed(snapshot)
    if unread:
        raise RefusedError(
            f"{opened.name}: {counted(unread, 'file has', 'files have')} no statistics yet, so nothing can be said "
            f"about them unopened; run "
            "`retention plan` without --estimate once, which reads their narrow columns"
        )
    if policy.topic is not None:
        return _exact(plan_topic_table(opened, policy.topic, as_of_ns, snapshot).plan)
    inventory = opened.store.inventory(snapshot)
    return estimate_pass(opened, inventory, as_of_ns)


def estimate_pass(opened: OpenedStream, inventory: Inventory, as_of_ns: int) -> Estimate:
    """Bound the effect of a pass over an existing stream.

    Raises:
        RefusedError: a consumer's state contradicts itself.
    """
    context = gather(opened, inventory, as_of_ns)
    with Engines("local") as engines:
        return bounds(context, UnopenedRows(opened, engines))


def bounds(context: PlanningContext, rows: StreamRows) -> Estimate:
    """Bound the effect of a pass from statistics and subject digests, without reading rows."""
    inventory, policy, as_of_ns = context.inventory, context.policy, context.as_of_ns
    if policy.retention != "limits":
        spans = spans_of(inventory.files)
        released = decide_release(context, spans, rows)
        return released_bounds(inventory, policy, as_of_ns, spans, released)
    decided = decide(all_remaining(inventory), policy, as_of_ns, rows)
    if policy.hold is None:
        return bounds_of(inventory, policy, as_of_ns, decided)
    hold = protection_of(policy.hold, context.consumers, as_of_ns)
    return bounds_of(inventory, policy, as_of_ns, decided, hold.some(decided.spans))


def _exact(plan: Plan) -> Estimate:
    """A plan made from metadata alone, as an estimate."""
    return Estimate(
        plan.header.stream,
        plan.header.as_of_ns,
        _only(plan.removed_messages),
        _only(plan.removed_bytes),
        {rule: _only(number) for rule, number in plan.by_rule.items()},
        {state: _only(number) for state, number in vars(plan.header.segments).items()},
        _only(0),
        _only(0),
    )


def _only(number: int) -> Bounds:
    return Bounds(number, number)
