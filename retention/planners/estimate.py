"""Estimates: bounds of the effect of a pass, always valid, without opening a data file."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.bounds import Bounds
from retention.core.inventory import Inventory
from retention.core.spans import spans_of
from retention.core.wording import counted
from retention.engines.select import Engines
from retention.errors import RefusedError
from retention.plan.estimate_bounds import Estimate, bounds_of
from retention.plan.estimate_interest import released_bounds
from retention.plan.plan import Plan, empty_plan
from retention.plan.remaining import RemainingRow, all_remaining
from retention.planners.consumer_protection import protection_of
from retention.planners.context import PlanningContext
from retention.planners.interest import decide_release
from retention.planners.probe import UnopenedRows
from retention.planners.replayed import plan_replay
from retention.planners.retention import decide
from retention.planners.rows import StreamRows
from retention.planners.table import gather
from retention.planners.topic import plan_topic_table
from retention.ports import Snapshot


def estimate(opened: OpenedStream, as_of_ns: int) -> Estimate:
    """Bound all numbers of the plan at `as_of_ns` from statistics alone; a pass that replays is planned instead.

    Raises:
        RefusedError: files appended by another writer have no statistics yet.
    """
    policy = opened.config.policy()
    if not opened.table.exists():
        return exactly(empty_plan(opened.name, as_of_ns, policy))
    snapshot = opened.store.snapshot()
    refuse_undescribed(opened, snapshot)
    if policy.topic is not None:
        return exactly(plan_topic_table(opened, policy.topic, as_of_ns, snapshot).plan)
    if policy.mode == "replay":
        with Engines("local") as engines:
            return exactly(plan_replay(opened, as_of_ns, engines).plan)
    inventory = opened.store.inventory(snapshot)
    return estimate_pass(opened, inventory, as_of_ns)


def refuse_undescribed(opened: OpenedStream, snapshot: Snapshot) -> None:
    """Refuse to bound anything by files that have no statistics yet.

    Raises:
        RefusedError: another writer appended files, and none of our commands has read them since.
    """
    unread = opened.store.count_undescribed(snapshot)
    if unread:
        raise RefusedError(
            f"{opened.name}: {counted(unread, 'file has', 'files have')} no statistics yet, so nothing can be said "
            f"about them unopened; run "
            "`retention plan` without --estimate once, which reads their narrow columns"
        )


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
        bounded = released_bounds(inventory, policy, as_of_ns, spans, released)
        return at_most(bounded, inventory) if context.holds.holds else bounded
    decided = decide(all_remaining(inventory), policy, as_of_ns, rows)
    on_hold = context.holds.some(decided.spans)
    if policy.hold is None:
        return bounds_of(inventory, policy, as_of_ns, decided, on_hold=on_hold)
    hold = protection_of(policy.hold, context.consumers, as_of_ns)
    return bounds_of(inventory, policy, as_of_ns, decided, hold.some(decided.spans), on_hold)


def at_most(bounded: Estimate, inventory: Inventory) -> Estimate:
    """The bounds of a release if legal holds may keep any of its messages, and planning has to look for them."""
    segments, files = sum(each.upper for each in bounded.segments.values()), inventory.files
    octets = int(pc.sum(files["file_bytes"], min_count=0).as_py())

    def up_to(number: Bounds, more: int = 0) -> Bounds:
        return Bounds(0, number.upper + more)

    return replace(
        bounded,
        removed_messages=up_to(bounded.removed_messages),
        removed_bytes=up_to(bounded.removed_bytes),
        by_rule={rule: up_to(number) for rule, number in bounded.by_rule.items()},
        segments={state: Bounds(0, segments) for state in bounded.segments},
        files_read=up_to(bounded.files_read, files.num_rows),
        bytes_read=up_to(bounded.bytes_read, octets),
        bytes_rewritten=Bounds(0, octets),
    )


def bounds_of_passes(context: PlanningContext, rows: StreamRows) -> Estimate:
    """Bound the removals of any passes of which the last is at the instant of the context; otherwise as `bounds`.

    An earlier pass may remove a message that would stop the scan by age in the last one, or that is newer than a
    deletion of its subject; so passes together may remove more than the last one alone. They may remove less, too: a
    deletion that expires before its retention has passed takes no other message with it. Numbers by rule are those
    of one pass.
    """
    once, policy = bounds(context, rows), context.policy
    expires = policy.allow_msg_ttl or policy.max_age_ns is not None
    frees = policy.allow_msg_ttl or policy.delete_retention_ns is not None
    if policy.retention != "limits" or not (expires and frees):
        return once
    every = bounds(replace(context, policy=replace(policy, expiry="each")), rows)
    more = 0 if policy.delete_retention_ns is None else _with_due_deletions(context, rows)
    stored = pc.sum(context.inventory.files["messages"], min_count=0).as_py()
    together = max(once.removed_messages.upper, every.removed_messages.upper) + more
    size = max(once.removed_bytes.upper, every.removed_bytes.upper)
    if more:
        size = pc.sum(context.inventory.files["bytes"], min_count=0).as_py()
    least = once
    if policy.delete_retention_ns is not None:
        kept_deletions = replace(policy, delete_retention_ns=None)
        least = bounds(replace(context, policy=kept_deletions), rows)
    return replace(
        once,
        removed_messages=Bounds(
            min(once.removed_messages.lower, least.removed_messages.lower), min(together, stored)
        ),
        removed_bytes=Bounds(min(once.removed_bytes.lower, least.removed_bytes.lower), size),
    )


def _with_due_deletions(context: PlanningContext, rows: StreamRows) -> int:
    """The messages on subjects with a deletion, last or not, whose retention has passed."""
    remaining, policy = all_remaining(context.inventory), context.policy
    files = remaining.files
    deletions = rows.deletions(remaining, [RemainingRow(row) for row in range(files.num_rows)])
    if deletions.unseen:
        return int(pc.sum(files["messages"], min_count=0).as_py())
    until_ns = context.as_of_ns - (policy.delete_retention_ns or 0)
    known = deletions.messages
    due = known.filter(pc.less_equal(known["ts_ns"], until_ns))["subject"]
    counts = remaining.subject_counts(rows)
    on_due = counts.filter(pc.is_in(counts["subject"], value_set=due.combine_chunks()))
    return int(pc.sum(on_due["messages"], min_count=0).as_py())


def exactly(plan: Plan) -> Estimate:
    """A plan as an estimate; of its cost, only what it has read is known."""
    return Estimate(
        plan.header.stream,
        plan.header.as_of_ns,
        _only(plan.removed_messages),
        _only(plan.removed_bytes),
        {rule: _only(number) for rule, number in plan.by_rule.items()},
        {state: _only(number) for state, number in vars(plan.header.segments).items()},
        _only(plan.header.read.files),
        _only(plan.header.read.bytes),
        _only(plan.bytes_rewritten),
    )


def _only(number: int) -> Bounds:
    return Bounds(number, number)
