"""Planning from an opened table: reading the inputs of the plan of one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.context.position import next_seq
from retention.core.inventory import Inventory
from retention.engine_port import Run
from retention.engines.select import Engines
from retention.interest.interest import consumer_snapshot_of
from retention.planners.context import PlanningContext
from retention.planners.probe import StoredRows
from retention.planners.retention import Planning, plan
from retention.ports import Snapshot


@dataclass(frozen=True)
class TablePlanning:
    """The planning of a pass, and its table."""

    planning: Planning
    snapshot: Snapshot


def plan_table(opened: OpenedStream, as_of_ns: int, engines: Engines) -> TablePlanning:
    """Plan one pass over an existing stream, from its whole table.

    Args:
        opened: the stream.
        as_of_ns: the pass's one instant, nanoseconds since the epoch.
        engines: the engines that read rows.

    Raises:
        RefusedError: the configuration or the table needs a feature that this version does not
            have, or consumers contradict themselves, the stream, or one another.
        DamagedError: a required file or record is damaged.
    """
    snapshot = opened.store.snapshot()
    # Consumers are read after the snapshot, because the commit requires the snapshot's counter of edits.
    inventory = opened.store.inventory(snapshot, runner(opened, engines))
    context = gather(opened, inventory, as_of_ns)
    return TablePlanning(plan(context, StoredRows(opened, engines)), snapshot)


def runner(opened: OpenedStream, engines: Engines) -> Run:
    """A function that runs tasks on the engine suitable for the bytes that they read."""

    def run(
        function: Callable[[Any], object], tasks: Sequence[object], weights: Sequence[int]
    ) -> Sequence[Any]:
        config = opened.config
        engine = engines.pick(config.engine, sum(weights), config.local_limit)
        return engine.map(function, tasks, weights)

    return run


def gather(opened: OpenedStream, inventory: Inventory, as_of_ns: int) -> PlanningContext:
    """Read the inputs of planning in addition to the inventory.

    Raises:
        RefusedError, DamagedError: as `plan_table`, of consumers and the run history.
    """
    policy = opened.config.policy()
    stores_markers = policy.subject_delete_marker_ttl_ns is not None
    return PlanningContext(
        inventory,
        policy,
        as_of_ns,
        consumer_snapshot_of(opened, inventory, as_of_ns),
        next_seq(opened, inventory) if stores_markers else 0,
        holds=holds_in_effect(opened, inventory.counters),
    )
