"""Small worlds of `tests.support.table_worlds` as Delta tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deltalake import write_deltalake

from retention.core.table_policy import TableLimits, TablePolicy
from retention.engines.local import LocalEngine
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_table
from tests.support.table_worlds import AS_OF_NS, TableWorld, as_table

TICK_US = 1_000_000
"""A tick is a second, which the log's bounds tell from the next one."""


def laid(world: TableWorld, folder: Path) -> OpenedTable:
    """The world as a Delta table, as of its instant."""
    location, warehouse = str(folder / "events"), folder / "warehouse"
    warehouse.mkdir()
    vectors = {"delta.enableDeletionVectors": str(bool(world.wider)).lower()}
    for file in world.files:
        rows = as_table(file, TICK_US)
        write_deltalake(location, rows, mode="append", configuration=vectors)
    return OpenedTable(
        "events", location, _scaled(world.policy), str(warehouse), lambda: AS_OF_NS * TICK_US
    )


def planned(opened: OpenedTable) -> TablePlan:
    """The plan of a pass of this instant."""
    return plan_table(opened, opened.clock(), lambda size: LocalEngine())


def _scaled(policy: TablePolicy) -> TablePolicy:
    rows = (replace(each, limits=_scaled_limits(each.limits)) for each in policy.policies)
    return replace(policy, limits=_scaled_limits(policy.limits), policies=tuple(rows))


def _scaled_limits(limits: TableLimits) -> TableLimits:
    age = limits.max_age_ns
    return replace(limits, max_age_ns=None if age is None else age * TICK_US)
