"""Planning of a pass with caches: nothing is due yet, or the oldest segments suffice, or the whole table is read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.context.dropped import dropped_of
from retention.context.holds import has_hold_records
from retention.core.inventory import ReadCount
from retention.core.labels import on_stream
from retention.engines.select import Engines
from retention.plan.cause import Cause
from retention.plan.forecast import NOTHING_FORETOLD, Forecast, forecast, forecast_at, never_below
from retention.plan.header import SegmentCounts
from retention.plan.loss import findings_of
from retention.plan.overdue import overdue_from_json
from retention.plan.plan import Plan, empty_plan
from retention.planners.lowered_limits import lowered_limits
from retention.planners.probe import StoredRows
from retention.planners.replayed import NextReplay, plan_replay
from retention.planners.retention import Planning, plan_prefix
from retention.planners.table import gather, plan_table
from retention.planners.topic import plan_topic_table
from retention.planners.topic_cached import plan_topic
from retention.ports import IncrementalInventory, Snapshot, VersionToken
from retention.rules.jetstream.evaluate import reaches_all
from retention.rules.jetstream.next_due import next_due
from retention.schemas.messages import NEVER
from retention.stores.sidecar.next_due import NextDue, recall, remember

_FIRST_FILES = 2_000
"""The number of oldest files to try first."""
_GROWTH = 8
"""The growth factor of that number between attempts."""


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


@dataclass(frozen=True)
class _Remembered:
    """A pass remembered to remove nothing."""

    plan: Plan
    due: NextDue


@dataclass(frozen=True)
class _Fresh:
    """A pass that had to be planned."""

    planning: Planning
    snapshot: Snapshot | None = None
    """The opened table; None: the oldest segments sufficed, and the table was not opened."""


def plan_pass(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Planned:
    """Plan one pass to apply it; a state remembered as not due yet is not opened.

    Raises:
        RefusedError: the configuration or the table needs a feature that this version does not have.
        DamagedError: a file that had to be read is damaged.
    """
    uncached = _uncached(opened, as_of_ns, engines)
    if uncached is not None:
        return uncached
    token = _token(opened)
    known = _recall(opened, token, as_of_ns)
    if known is not None:
        return Planned(known.plan, known.due.next_seq, None)
    fresh = _plan_state(opened, token, as_of_ns, engines)
    _remember(opened, token, fresh, None)
    counters = fresh.planning.inventory.counters
    return Planned(fresh.planning.plan, counters.next_seq, fresh.snapshot)


@on_stream
def plan_stream(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass to show it, like `plan_pass`, with its forecast, exceeded guards and lowered limits.

    Raises:
        RefusedError, DamagedError: as `plan_pass`.
    """
    plan = _plan_with_forecast(opened, as_of_ns, engines)
    guards = findings_of(opened.config.guards.rule(), plan)
    if plan.header.policy.mode == "replay":
        return replace(plan, guards=guards)

    def plan_as(config: StreamConfig) -> Plan:
        return _plan_once(replace(opened, config=config), as_of_ns, engines)

    return replace(
        plan,
        guards=guards,
        lowered=lowered_limits(opened, plan, plan_as),
    )


def _plan_once(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass over an existing stream without using its cache."""
    topic = opened.config.policy().topic
    if topic is not None:
        return plan_topic_table(opened, topic, as_of_ns).plan
    return _plan_state(opened, _token(opened), as_of_ns, engines).planning.plan


def _plan_with_forecast(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass, and forecast later ones."""
    uncached = _uncached(opened, as_of_ns, engines)
    if uncached is not None:
        return uncached.plan
    token = _token(opened)
    known = _recall(opened, token, as_of_ns)
    if known is not None and known.due.forecast is not None:
        foretold = forecast_at(as_of_ns, known.due.due_ns, known.due.forecast)
        return replace(known.plan, forecast=foretold)
    fresh = _plan_state(opened, token, as_of_ns, engines)
    foretold = _foretell(fresh.planning)
    _remember(opened, token, fresh, foretold)
    return replace(fresh.planning.plan, forecast=foretold)


def _uncached(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Planned | None:
    """The pass over a missing stream, over a topic (which has its own cache), or one that replays; else None."""
    policy = opened.config.policy()
    if not opened.store.exists():
        plan = empty_plan(opened.name, as_of_ns, policy)
        return Planned(replace(plan, dropped=dropped_of(opened)), {}, None)
    if policy.topic is not None:
        return Planned(*plan_topic(opened, policy.topic, as_of_ns))
    if policy.mode == "replay":
        replayed = plan_replay(opened, as_of_ns, engines)
        next_seq = replayed.inventory.counters.next_seq
        return Planned(replayed.plan, next_seq, replayed.snapshot, replayed.goes_on)
    return None


def _token(opened: OpenedStream) -> VersionToken | None:
    """The version token of the cached newest state; None: it is not cached.

    Changes by consumers do not change the table's version, and a legal hold may be recorded and not yet counted, so
    their streams are not cached.
    """
    if opened.config.policy().asks_consumers or has_hold_records(opened):
        return None
    return opened.store.version_token()


def _recall(opened: OpenedStream, token: VersionToken | None, as_of_ns: int) -> _Remembered | None:
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
    return _Remembered(plan, due)


def _plan_state(
    opened: OpenedStream, token: VersionToken | None, as_of_ns: int, engines: Engines
) -> _Fresh:
    """Plan from the oldest segments if an inventory of this state is cached; otherwise from the table, and cache it."""
    incremental = None if token is None else opened.store.incremental_inventory(token)
    planning = None if incremental is None else _plan_oldest(opened, incremental, as_of_ns, engines)
    if planning is not None:
        return _Fresh(planning)
    whole = plan_table(opened, as_of_ns, engines)
    if token is not None and token.tells(whole.snapshot):
        opened.store.cache_inventory(whole.planning.inventory, token)
    return _Fresh(whole.planning, whole.snapshot)


def _plan_oldest(
    opened: OpenedStream, incremental: IncrementalInventory, as_of_ns: int, engines: Engines
) -> Planning | None:
    """Plan from the necessary number of oldest segments; None: the cache is lost."""
    policy = opened.config.policy()
    files, rows = sys.maxsize if reaches_all(policy) else _FIRST_FILES, StoredRows(opened, engines)
    while (head := incremental.head(files)) is not None:
        context = gather(opened, head.inventory, as_of_ns)
        planning = plan_prefix(context, head.later, rows)
        if planning is not None:
            return planning
        files *= _GROWTH
    return None


def _foretell(planning: Planning) -> Forecast:
    """Forecast due messages; the forecast is empty for a stream that depends on consumers."""
    plan = planning.plan
    if plan.header.policy.rests_on_consumers:
        return NOTHING_FORETOLD
    inventory, decided = planning.inventory, planning.decided
    ahead = forecast(inventory, plan.header.policy, plan.header.as_of_ns, decided, planning.tail)
    return never_below(ahead, plan.header.policy, plan.removed_messages, plan.removed_bytes)


def _remember(
    opened: OpenedStream, token: VersionToken | None, fresh: _Fresh, foretold: Forecast | None
) -> None:
    """Cache the next due instant, if metadata alone shows that nothing is due before it.

    Args:
        opened: the stream.
        token: the token of the planned state; None: nothing is cached.
        fresh: the pass.
        foretold: its forecast, or None.
    """
    planning, snapshot = fresh.planning, fresh.snapshot
    plan, counters = planning.plan, planning.inventory.counters
    if token is None or token.version != plan.header.version:
        return
    if not plan.is_empty or plan.header.read != ReadCount():
        return
    if snapshot is not None and not (snapshot.follows and token.tells(snapshot)):
        return
    instant = next_due(planning.decided, plan.header.policy, counters.open_base)
    if planning.tail.segments and instant == NEVER and plan.header.policy.max_age_ns is not None:
        # Messages after the oldest segments may still be due.
        return
    if instant is not None and plan.header.as_of_ns < instant:
        # Nothing is removed until then and messages only get older, so the overdue count may rise but not fall.
        overdue = None if plan.overdue is None else plan.overdue.at_least()
        due = NextDue(
            plan.header.table_id,
            instant,
            plan.header.segments.kept,
            dict(counters.next_seq),
            None if foretold is None else tuple(foretold.as_json()["due"]),
            epoch=counters.epoch,
            overdue=None if overdue is None else overdue.as_json(),
        )
        remember(opened.root, token, plan.header.policy, due)
