"""The rows that a plan removes, one by one: file, position, limit, and the columns that limits read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from retention.core.spans import Array
from retention.core.spoken_commands import command
from retention.core.table_policy import LIMITS
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import positions_of
from retention.errors import RefusedError, StalePlanError
from retention.planners.table_rows import NarrowFile, read_narrow
from retention.rules.tables.sql import statements
from retention.tables.access import access_of
from retention.tables.bounds import times_of
from retention.tables.narrow import NarrowReader, path_in, shown, shown_columns
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan

PLACE = pa.schema({"file": pa.string(), "row": pa.int64(), "limit": pa.string()})
"""The columns before those of the table: the file's path from the table's location on, the row's position in it from
0 on, and the limit."""
KEPT = -1
"""Beside indexes into `LIMITS`: no limit removes the row."""


def removed_rows(table: OpenedTable, plan: TablePlan) -> Iterator[pa.Table]:
    """The rows that a plan removes, in order of files and rows: `PLACE`, then `shown_columns` in their own types.

    The first table has no rows, and shows the shape; then there is one for each file.

    Raises:
        StalePlanError: another table is there.
        DamagedError, StorageError: a file cannot be read.
    """
    reader = NarrowReader.of_own(_snapshot_of(table, plan), shown_columns(plan.policy.columns))
    yield shape_of(reader).empty_table()
    for number, removals in enumerate(plan.removals):
        task = reader.task(number, removals.add, removals.live)
        stored, _ = read_narrow(task)
        yield located(stored, task, reader.snapshot.root, removals.rows)


def shape_of(reader: NarrowReader) -> pa.Schema:
    """The shape of rows that `located` makes of the tasks of a reader of own types."""
    columns = [pa.field(shown(column), column.type) for column in reader.columns]
    return pa.schema([*PLACE, *columns])


def located(
    stored: pa.Table, task: NarrowFile, root: str, rows: Mapping[str, BitMap64 | None]
) -> pa.Table:
    """The rows of a file that limits remove, with the file's path and the limit of each.

    Args:
        stored: the live rows, as `read_narrow` reads them.
        task: the file.
        root: the table's location.
        rows: limit → positions, as `plan.FileRemovals.rows`.
    """
    limits = limit_of_rows(stored["row"].to_numpy(), rows)
    gone = np.flatnonzero(limits != KEPT)
    names = pa.DictionaryArray.from_arrays(pa.array(limits[gone]), pa.array(LIMITS))
    taken = stored.take(pa.array(gone))
    place = {
        "file": pa.repeat(pa.scalar(path_in(root, task)), len(gone)),
        "row": taken["row"],
        "limit": names.cast(pa.string()),
    }
    return pa.table({**place, **{shown(column): taken[column.name] for column in task.columns}})


def limit_of_rows(positions: Array, rows: Mapping[str, BitMap64 | None]) -> Array:
    """The index into `LIMITS` of the limit that removes each row, else `KEPT`; int8, shape (rows,).

    Args:
        positions: those of the rows, ascending.
        rows: limit → positions, as `plan.FileRemovals.rows`.
    """
    limits = np.full(len(positions), KEPT, np.int8)
    for name, removed in rows.items():
        limits[slice(None) if removed is None else _places(positions, removed)] = LIMITS.index(name)
    return limits


def _places(positions: Array, removed: BitMap64) -> Array:
    """The places of removed positions among others."""
    wanted = positions_of(removed)
    places = np.searchsorted(positions, wanted)
    inside = places < len(positions)
    return places[inside][positions[places[inside]] == wanted[inside]]


def plan_statements(table: OpenedTable, plan: TablePlan) -> list[str]:
    """The limits of a plan as statements of Spark SQL, to be run in that order.

    Raises:
        UsageError: no statement removes rows from such a table.
        RefusedError: the plan was made under legal holds, which statements would ignore.
        StalePlanError: another table is there.
    """
    if plan.holds:
        raise RefusedError(
            f"{table.name}: statements would remove rows under legal hold {', '.join(plan.holds)}; nothing was "
            f"changed; {command('plan', table.name, options='--rows FILE')} lists the rows that a pass removes"
        )
    named = access_of(table).named_in_sql(table)
    snapshot = _snapshot_of(table, plan)
    return statements(named, plan.policy, times_of(snapshot, plan.policy), plan.as_of_ns)


def _snapshot_of(table: OpenedTable, plan: TablePlan) -> DeltaSnapshot:
    """The table of a plan, as it is now.

    Raises:
        StalePlanError: it is another table.
    """
    snapshot = access_of(table).read(table)
    if snapshot.metadata["id"] != plan.table_id:
        raise StalePlanError(
            f"{plan.location}: another table is there since the plan was made; plan again"
        )
    return snapshot
