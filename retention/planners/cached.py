"""Planning of a pass with caches: nothing is due yet, or the state is planned afresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.context.hold_listing import has_hold_records
from retention.core.prefix import TailTotals
from retention.engines.select import Engines
from retention.plan.cause import Cause
from retention.plan.header import SegmentCounts
from retention.plan.overdue import overdue_from_json
from retention.plan.plan import Plan, empty_plan
from retention.ports import Snapshot, VersionToken
from retention.stores.sidecar.next_due import NextDue, recall

if TYPE_CHECKING:
    from retention.core.counters import Counters
    from retention.planners.replayed import NextReplay
    from retention.rules.fold import Evaluation


@dataclass(frozen=True)
class PlannedState:
    """A state of a stream that a pass was planned from."""

    token: VersionToken
    """The token that was read before the state."""
    decided: Evaluation
    """The pass over the stream, or over its oldest segments."""
    counters: Counters
    tail: TailTotals
    """Totals of the segments after them."""


@dataclass(frozen=True)
class Planned:
    """A plan, and the counters and the table to apply it immediately."""

    plan: Plan
    next_seq: Mapping[int, int]
    """Partition → the next sequence to assign."""
    snapshot: Snapshot | None
    """The opened table; None if it was not needed."""
    goes_on: NextReplay | None = None
    """The state that a pass with `mode: replay` commits; None: it commits none."""
    state: PlannedState | None = None
    """The state that the plan was made from; None: it has no token, or the plan is no pass over a stream."""


@dataclass(frozen=True)
class Remembered:
    """A pass remembered to remove nothing."""

    plan: Plan
    due: NextDue


def plan_pass(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Planned:
    """Plan one pass to apply it; a state remembered as not due yet is not opened.

    Raises:
        RefusedError: the configuration or the table needs a feature that this version does not have.
        DamagedError: a file that had to be read is damaged.
    """
    uncached = uncached_plan(opened, as_of_ns, engines)
    if uncached is not None:
        return uncached
    token = token_of(opened)
    known = recalled(opened, token, as_of_ns)
    if known is not None:
        return Planned(known.plan, known.due.next_seq, None)
    from retention.planners.afresh import cache_inventory, plan_state, remember_due

    fresh = plan_state(opened, token, as_of_ns, engines)
    if not fresh.is_soon_replaced:
        cache_inventory(opened, token, fresh)
    remember_due(opened, token, fresh, None)
    planning, counters = fresh.planning, fresh.planning.inventory.counters
    state = None
    if token is not None:
        state = PlannedState(token, planning.decided, counters, planning.tail)
    return Planned(planning.plan, counters.next_seq, fresh.snapshot, state=state)


def uncached_plan(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Planned | None:
    """The pass over a missing stream, over a topic (which has its own cache), or one that replays; else None."""
    policy = opened.config.policy()
    if not opened.table.exists():
        from retention.context.dropped import dropped_of

        plan = empty_plan(opened.name, as_of_ns, policy)
        return Planned(replace(plan, dropped=dropped_of(opened)), {}, None)
    if policy.topic is not None:
        from retention.planners.topic_cached import plan_topic

        return Planned(*plan_topic(opened, policy.topic, as_of_ns))
    if policy.mode == "replay":
        from retention.planners.replayed import plan_replay

        replayed = plan_replay(opened, as_of_ns, engines)
        next_seq = replayed.inventory.counters.next_seq
        return Planned(replayed.plan, next_seq, replayed.snapshot, replayed.goes_on)
    return None


def token_of(opened: OpenedStream) -> VersionToken | None:
    """The version token of the cached newest state; None: it is not cached.

    Changes by consumers do not change the table's version, and a legal hold may be recorded and not yet counted, so
    their streams are not cached.
    """
    if opened.config.policy().asks_consumers or has_hold_records(opened):
        return None
    return opened.table.version_token()


def recalled(opened: OpenedStream, token: VersionToken | None, as_of_ns: int) -> Remembered | None:
    """The empty plan, if this state is remembered as not due yet; otherwise None."""
    policy = opened.config.policy()
    due = None if token is None else recall(opened.root, token, policy)
    if token is None or due is None or due.due_ns <= as_of_ns:
        return None
    plan = empty_plan(opened.name, as_of_ns, policy)
    header = replace(
        plan.header,
        table_id=due.table_id,
        version=token.version,
        segments=SegmentCounts(kept=due.segments),
        epoch=due.epoch,
    )
    cause = Cause(next_seq=due.next_seq, next_due_ns=due.due_ns)
    overdue = overdue_from_json(due.overdue)
    plan = replace(plan, header=header, cause=cause, overdue=overdue)
    return Remembered(plan, due)
