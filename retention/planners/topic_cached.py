"""Planning of a topic without opening it, if the cache shows that nothing is due yet."""

from __future__ import annotations

from collections.abc import Mapping

from retention.context.context import OpenedStream
from retention.context.hold_listing import has_hold_records
from retention.core.read_count import ReadCount
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.plan.cause import Cause
from retention.plan.consumer_snapshot import Pin, pins_as_json
from retention.plan.header import Header, Pins, SegmentCounts
from retention.plan.plan import Plan
from retention.plan.protected import ProtectedSegments
from retention.planners.topic import TopicPlanning, pins_of, plan_topic_table
from retention.ports import Snapshot, VersionToken
from retention.rules.iggy.next_due import next_due
from retention.schemas.deadlines import NEVER
from retention.stores.offset_table import OffsetTable
from retention.stores.sidecar import next_due as due


def plan_topic(
    opened: OpenedStream, topic: TopicPolicy, as_of_ns: int
) -> tuple[Plan, Mapping[int, int], Snapshot | None]:
    """Plan one pass; returns the plan, partition → next offset, and the table, or None if it was not opened.

    Raises:
        RefusedError, DamagedError: as `plan_topic_table`.
    """
    token = None if has_hold_records(opened) else opened.table.version_token()
    known = None if token is None else _remembered(opened, token, topic, as_of_ns)
    if known is not None:
        return (*known, None)
    planning = plan_topic_table(opened, topic, as_of_ns)
    if token is not None:
        _remember(opened, token, topic, planning)
    return planning.plan, planning.inventory.counters.next_seq, planning.snapshot


def _remembered(
    opened: OpenedStream, token: VersionToken, topic: TopicPolicy, as_of_ns: int
) -> tuple[Plan, Mapping[int, int]] | None:
    """The empty plan, if the table and the stored offsets are remembered as not due yet; otherwise None."""
    policy = opened.config.policy()
    cached = due.recall(opened.root, token, policy)
    if cached is None or cached.due_ns <= as_of_ns:
        return None
    pins = pins_of(OffsetTable(opened.root).read())
    if cached.rests_on != _pins_json(pins):
        return None
    header = Header(
        opened.name,
        cached.table_id,
        token.version,
        as_of_ns,
        policy,
        epoch=cached.epoch,
        segments=SegmentCounts(kept=cached.segments),
    )
    plan = Plan(
        header,
        Pins(consumers=pins),
        cause=Cause(next_seq=cached.next_seq, next_due_ns=cached.due_ns),
        held_segments=ProtectedSegments() if topic.respect_consumer_offsets else None,
    )
    return plan, cached.next_seq


def _remember(
    opened: OpenedStream, token: VersionToken, topic: TopicPolicy, planning: TopicPlanning
) -> None:
    """Cache the next due instant, if known statistics alone show that nothing is due or held."""
    plan = planning.plan
    if token.version != plan.header.version or not plan.is_empty or plan.header.read != ReadCount():
        return
    if plan.ahead:
        # Every plan reports this, from its segments.
        return
    if not (planning.snapshot.follows and token.tells(planning.snapshot)) or (
        plan.held_segments and plan.held_segments.segments
    ):
        return
    due_us = next_due(planning.stored_segments, topic)
    instant = NEVER if due_us is None else min(due_us * MICROSECOND, NEVER)
    if plan.header.as_of_ns < instant:
        counters, rests_on = planning.inventory.counters, _pins_json(pins_of(planning.offsets))
        record = due.NextDue(
            plan.header.table_id,
            instant,
            plan.header.segments.kept,
            dict(counters.next_seq),
            rests_on=rests_on,
            epoch=counters.epoch,
        )
        due.remember(opened.root, token, plan.header.policy, record)


def _pins_json(pins: tuple[Pin, ...]) -> tuple[Mapping[str, object], ...]:
    return tuple(pins_as_json(pins) or ())
