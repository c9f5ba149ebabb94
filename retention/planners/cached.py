"""A pass planned from what is remembered: nothing due yet, the oldest segments alone, or the whole table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from retention.context.context import OpenedStream
from retention.core.inventory import ReadCount
from retention.engines.select import Engines
from retention.plan.forecast import forecast, remembered
from retention.plan.plan import Plan, SegmentCounts, empty_plan
from retention.plan.remaining import untouched
from retention.planners.probe import Rows
from retention.planners.retention import Look, decide, look, look_at
from retention.planners.topic_cached import plan_topic
from retention.ports import Mark, Outlook, Snapshot
from retention.rules.jetstream.evaluate import reaches_all
from retention.rules.jetstream.next_due import next_due
from retention.rules.jetstream.prefix_scan import before, ends_before
from retention.stores.sidecar import next_due as due
from schemas.messages import NEVER

_FIRST_FILES = 2_000


_GROWTH = 8


@dataclass(frozen=True)
class Planned:
    """A plan, and what carrying it out at once goes on with."""

    plan: Plan
    next_seq: Mapping[int, int]
    """Partition → the next sequence to assign."""
    snapshot: Snapshot | None
    """What was opened; None if there was no need to."""


def plan_stream(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass.

    Raises:
        RefusedError: the stream's configuration or its table needs what this version cannot do.
        DamagedError: a file that had to be read is damaged.
    """
    return plan_pass(opened, as_of_ns, engines).plan


def plan_pass(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Planned:
    """Plan one pass; a state of which is remembered that nothing is due yet is not opened.

    Raises:
        RefusedError, DamagedError: as `plan_stream`.
    """
    policy = opened.config.policy()
    nothing = empty_plan(opened.name, as_of_ns, policy)
    if not opened.store.exists():
        return Planned(nothing, {}, None)
    if policy.topic is not None:
        return Planned(*plan_topic(opened, policy.topic, as_of_ns))
    if policy.asks_consumers:
        # What consumers settle leaves no mark on the table.
        found = look(opened, as_of_ns, engines, every_row=False)
        found = found if policy.rests_on_consumers else _foretold(found)
        return Planned(found.plan, found.inventory.counters.next_seq, found.snapshot)
    mark = opened.store.mark()
    quiet = None if mark is None else due.recall(opened.root, mark, policy)
    if mark is not None and quiet is not None and as_of_ns < quiet.due_ns:
        kept = SegmentCounts(kept=quiet.segments)
        told = remembered(as_of_ns, quiet.due_ns, quiet.forecast)
        plan = replace(
            nothing,
            table_id=quiet.table_id,
            version=mark.version,
            segments=kept,
            forecast=told,
            epoch=quiet.epoch,
        )
        return Planned(plan, quiet.next_seq, None)
    outlook = None if mark is None else opened.store.outlook(mark)
    seen = None if outlook is None else look_ahead(opened, outlook, as_of_ns, engines)
    if seen is None:
        seen = look(opened, as_of_ns, engines, every_row=False)
        if mark is not None and seen.snapshot is not None and mark.tells(seen.snapshot):
            opened.store.keep(seen.inventory, mark)
    seen = _foretold(seen)
    if mark is not None:
        _remember(opened, mark, seen)
    return Planned(seen.plan, seen.inventory.counters.next_seq, seen.snapshot)


def _foretold(seen: Look) -> Look:
    """The same with what is due when."""
    plan = seen.plan
    told = forecast(seen.inventory, plan.policy, plan.as_of_ns, seen.decided, seen.later)
    return replace(seen, plan=replace(plan, forecast=told))


def _remember(opened: OpenedStream, mark: Mark, seen: Look) -> None:
    """Keep the next due instant, if metadata alone found that nothing goes and tells until when."""
    plan, counters = seen.plan, seen.inventory.counters
    if mark.version != plan.version or not plan.is_empty or plan.read != ReadCount():
        return
    if seen.snapshot is not None and not (seen.snapshot.follows and mark.tells(seen.snapshot)):
        return
    instant = next_due(seen.decided, plan.policy, counters.open_base)
    if seen.later.segments and instant == NEVER and plan.policy.max_age_ns is not None:
        # In what lies behind the head, something may be due all the same.
        return
    if instant is not None and plan.as_of_ns < instant:
        foretold = tuple(plan.forecast.as_json()["due"])
        next_seq = dict(counters.next_seq)
        quiet = due.NextDue(
            plan.table_id,
            instant,
            plan.segments.kept,
            next_seq,
            foretold,
            epoch=counters.epoch,
        )
        due.remember(opened.root, mark, plan.policy, quiet)


def look_ahead(
    opened: OpenedStream, outlook: Outlook, as_of_ns: int, engines: Engines
) -> Look | None:
    """Plan one pass from the oldest segments alone, as many of them as it takes; None: they are lost.

    Raises:
        RefusedError, DamagedError: as `plan_stream`.
    """
    policy = opened.config.policy()
    files = sys.maxsize if reaches_all(policy) else _FIRST_FILES
    while (head := outlook.head(files)) is not None:
        inventory, later = head.inventory, head.later
        seen_from_head = before(policy, later.messages, later.bytes)
        if seen_from_head is not None:
            left = untouched(inventory)
            decided = decide(opened, left, seen_from_head, as_of_ns, engines)
            if not later.segments or ends_before(decided):
                rows = Rows(opened, left, engines)
                seen = look_at(rows, decided, as_of_ns, every_row=False)
                segments = seen.plan.segments
                segments = replace(segments, kept=segments.kept + later.segments)
                return replace(seen, plan=replace(seen.plan, segments=segments), later=later)
        files *= _GROWTH
    return None
