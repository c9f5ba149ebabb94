"""Planning of a state that no cache answers for: the oldest segments suffice, or the whole table is read."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.core.prefix import TailTotals
from retention.core.read_count import ReadCount
from retention.engines.select import Engines
from retention.plan.forecast import Forecast
from retention.plan.plan import Plan
from retention.planners.probe import StoredRows
from retention.planners.retention import Planning, plan_prefix
from retention.planners.table import gather, plan_table
from retention.ports import IncrementalInventory, Snapshot, VersionToken
from retention.rules.fold import Evaluation
from retention.rules.jetstream.evaluate import reaches_all
from retention.rules.jetstream.next_due import next_due
from retention.schemas.deadlines import NEVER
from retention.stores.sidecar.next_due import NextDue, remember

_FIRST_FILES = 2_000
"""The number of oldest files to try first."""
_GROWTH = 8
"""The growth factor of that number between attempts."""
MANY_FILES = 1_000
"""The number of files from which the next pass gains more by a cached inventory than this one pays for it."""


@dataclass(frozen=True)
class Fresh:
    """A pass that had to be planned."""

    planning: Planning
    snapshot: Snapshot | None = None
    """The opened table; None: the oldest segments sufficed, and the table was not opened."""

    @property
    def is_soon_replaced(self) -> bool:
        """Whether its commit replaces the planned state, of so few files that opening the next one costs little."""
        planning = self.planning
        return not planning.plan.is_empty and planning.inventory.files.num_rows < MANY_FILES


def plan_state(
    opened: OpenedStream, token: VersionToken | None, as_of_ns: int, engines: Engines
) -> Fresh:
    """Plan from the oldest segments if an inventory of this state is cached; otherwise from the table."""
    incremental = None if token is None else opened.store.incremental_inventory(token)
    planning = None if incremental is None else _plan_oldest(opened, incremental, as_of_ns, engines)
    if planning is not None:
        return Fresh(planning)
    whole = plan_table(opened, as_of_ns, engines)
    return Fresh(whole.planning, whole.snapshot)


def cache_inventory(opened: OpenedStream, token: VersionToken | None, fresh: Fresh) -> None:
    """Cache the inventory of a table that had to be opened, for later plans.

    Args:
        opened: the stream.
        token: the token of the planned state; None: nothing is cached.
        fresh: the pass.
    """
    if token is not None and fresh.snapshot is not None and token.tells(fresh.snapshot):
        opened.store.cache_inventory(fresh.planning.inventory, token)


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


def remember_due(
    opened: OpenedStream, token: VersionToken | None, fresh: Fresh, foretold: Forecast | None
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
    due = next_due_of(plan, planning.decided, counters, planning.tail, plan.header.segments.kept)
    if due is not None:
        due = replace(due, forecast=None if foretold is None else tuple(foretold.as_json()["due"]))
        remember(opened.root, token, plan.header.policy, due)


def next_due_of(
    plan: Plan, decided: Evaluation, counters: Counters, tail: TailTotals, segments: int
) -> NextDue | None:
    """The next due instant of a state; None: something may be due at the instant of the plan, or it is unknown.

    Args:
        plan: a pass over this state, or the one that led to it.
        decided: the decision from metadata about the stream, or its oldest segments.
        counters: of the stream.
        tail: totals of the segments after them.
        segments: the number of all segments.
    """
    policy = plan.header.policy
    instant = next_due(decided, policy, counters.open_base)
    if tail.segments and instant == NEVER and policy.max_age_ns is not None:
        # Messages after the oldest segments may still be due.
        return None
    if instant is None or instant <= plan.header.as_of_ns:
        return None
    # Nothing is removed until then and messages only get older, so the overdue count may rise but not fall.
    overdue = None if plan.overdue is None else plan.overdue.at_least()
    return NextDue(
        plan.header.table_id,
        instant,
        segments,
        dict(counters.next_seq),
        epoch=counters.epoch,
        overdue=None if overdue is None else overdue.as_json(),
    )
