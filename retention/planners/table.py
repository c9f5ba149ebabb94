"""Planning from an opened table: reading what the plan of one pass rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retention.context.context import OpenedStream
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
    """The planning of a pass, and the table that it was made from."""

    planning: Planning
    snapshot: Snapshot


def plan_table(opened: OpenedStream, as_of_ns: int, engines: Engines) -> TablePlanning:
    """Plan one pass over a stream that exists, from all of its table.

    Args:
        opened: the stream.
        as_of_ns: the pass's one instant, nanoseconds since the epoch.
        engines: where rows are read.

    Raises:
        RefusedError: the stream's configuration or its table needs what this version cannot do, or consumers
            contradict themselves, the stream, or one another.
        DamagedError: a file or a record that had to be read is damaged.
    """
    snapshot = opened.store.snapshot()
    # Consumers are read behind the snapshot, on whose counter of edits the commit rests.
    inventory = opened.store.inventory(snapshot, runner(opened, engines))
    context = gather(opened, inventory, as_of_ns)
    return TablePlanning(plan(context, StoredRows(opened, engines)), snapshot)


def runner(opened: OpenedStream, engines: Engines) -> Run:
    """A function that runs tasks on the engine that the bytes they read ask for."""

    def run(
        function: Callable[[Any], Any], tasks: Sequence[Any], weights: Sequence[int]
    ) -> Sequence[Any]:
        config = opened.config
        engine = engines.pick(config.engine, sum(weights), config.local_limit)
        return engine.map(function, tasks, weights)

    return run


def gather(opened: OpenedStream, inventory: Inventory, as_of_ns: int) -> PlanningContext:
    """Read what planning starts from beside the inventory.

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
    )
