"""Planning a pass over a table in place: its log decides most files, and narrow rows decide the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from retention.core.spans import Array
from retention.core.table_policy import LIMITS
from retention.delta.features import refuse_unsafe
from retention.delta.parquet_rows import ParquetSource
from retention.delta.schema import arrow_type, leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import read_vector
from retention.engine_port import Engine
from retention.planners.table_rows import DecidedRows, NarrowColumn, NarrowFile, decide_rows
from retention.rules.tables.files import (
    FileVerdicts,
    decide_files,
    files_beyond_bytes,
    narrow_columns,
)
from retention.rules.tables.rows import RowRules
from retention.storage import files
from retention.tables.access import access_of
from retention.tables.bounds import (
    by_path,
    file_bounds,
    is_partition,
    known_rows,
    leaf_of,
    partition_values,
    times_of,
)
from retention.tables.opened import OpenedTable
from retention.tables.plan import FileRemovals, TablePlan, Unlimited


@dataclass(frozen=True)
class _Numbered:
    """A table with its files numbered by path, as rules number them."""

    snapshot: DeltaSnapshot
    order: Array
    """The rows of the snapshot's files, by number."""
    rows: Array
    """The live rows of each file, by number."""

    def add(self, number: int) -> dict[str, Any]:
        """The `add` action of a file."""
        return self.snapshot.add_of(int(self.order[number]))


def plan_table(
    table: OpenedTable, as_of_ns: int, choose_engine: Callable[[int], Engine]
) -> TablePlan:
    """Plan a pass; nothing is changed.

    Args:
        table: the table.
        as_of_ns: the instant of the pass, nanoseconds since the epoch.
        choose_engine: the engine that reads a number of bytes.

    Raises:
        RefusedError: nothing may be removed from the table.
        ConfigError: the table has no such column, or of another type.
        UsageError: there is no table.
        DamagedError, StorageError: its log or a file cannot be read.
    """
    access = access_of(table)
    snapshot = access.read(table)
    refuse_unsafe(snapshot)
    if not leaves(snapshot.metadata):
        return access.planned(_empty(table, snapshot, as_of_ns), snapshot)
    policy, times = table.policy, times_of(snapshot, table.policy)
    order = by_path(snapshot)
    numbered = _Numbered(snapshot, order, _live_rows(snapshot, order))
    bounds = file_bounds(snapshot, policy, times, order, pa.array(numbered.rows))
    verdicts = decide_files(bounds, policy, times, as_of_ns)
    tasks = list(_tasks(table, numbered, verdicts))
    engine = choose_engine(sum(task.narrow_bytes for task in tasks))
    rules = RowRules(policy, times, as_of_ns)
    decided = decide_rows(tasks, rules, verdicts.newer_rows, engine)
    removals = _removals(numbered, verdicts, decided)
    gone = np.zeros(len(order), dtype=bool)
    gone[[number for number, each in removals.items() if each.is_whole]] = True
    beyond = files_beyond_bytes(bounds, policy, verdicts.possible, gone)
    for number in np.flatnonzero(beyond).tolist():
        removals[number] = _whole(numbered, number, "max_bytes", removals.get(number))
    plan = TablePlan(
        table.name,
        table.location,
        snapshot.metadata["id"],
        snapshot.version,
        as_of_ns,
        policy,
        tuple(removals[number] for number in sorted(removals)),
        len(order),
        Unlimited(**vars(decided.notes)),
        decided.read.files,
        decided.read.bytes,
    )
    return access.planned(plan, snapshot)


def _empty(table: OpenedTable, snapshot: DeltaSnapshot, as_of_ns: int) -> TablePlan:
    """The plan of a table without columns: a directory has those of its files, which may all be gone."""
    table_id = snapshot.metadata["id"]
    return TablePlan(
        *(table.name, table.location, table_id, snapshot.version, as_of_ns, table.policy, (), 0)
    )


def _live_rows(snapshot: DeltaSnapshot, order: Array) -> Array:
    """The live rows of each file: by the log, else by the file's own count and its vector."""
    known = known_rows(snapshot, order)
    rows = known.fill_null(0).to_numpy(zero_copy_only=False).copy()
    for number in np.flatnonzero(known.is_null().to_numpy(zero_copy_only=False)).tolist():
        add = snapshot.add_of(int(order[number]))
        hidden = (add.get("deletionVector") or {}).get("cardinality", 0)
        rows[number] = ParquetSource(snapshot.root, snapshot.metadata, add).rows - hidden
    return rows


def _tasks(table: OpenedTable, numbered: _Numbered, verdicts: FileVerdicts) -> Iterator[NarrowFile]:
    """The files to read, because bounds leave them open."""
    snapshot = numbered.snapshot
    named = {
        name: leaf_of(snapshot, column) for name, column in narrow_columns(table.policy).items()
    }
    columns = tuple(
        NarrowColumn(name, leaf.physical, arrow_type(leaf.type) or pa.string())
        for name, leaf in named.items()
    )
    numbers = verdicts.to_read.tolist()
    order = numbered.order[numbers]
    of_partitions = {
        name: partition_values(snapshot, leaf, order)
        for name, leaf in named.items()
        if is_partition(snapshot, leaf)
    }
    for at, number in enumerate(numbers):
        add = numbered.add(number)
        dead = np.array(read_vector(snapshot.root, add.get("deletionVector")), np.int64)
        constant = {name: values.slice(at, 1) for name, values in of_partitions.items()}
        yield NarrowFile(
            number,
            files.join(snapshot.root, unquote(str(add["path"]))),
            int(numbered.rows[number]) + len(dead),
            columns,
            pa.table(constant),
            dead,
        )


def _removals(
    numbered: _Numbered, verdicts: FileVerdicts, decided: DecidedRows
) -> dict[int, FileRemovals]:
    """Number of a file → the rows that go from it."""
    removals = {
        number: _whole(numbered, number, LIMITS[verdicts.verdicts[number]], None)
        for number in np.flatnonzero(verdicts.verdicts >= 0).tolist()
    }
    dead = decided.dead
    numbers = dead["file"].to_numpy()
    changes = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, end in pairwise([*changes, len(numbers)]):
        of_file, number = dead.slice(start, end - start), int(numbers[start])
        removals[number] = FileRemovals(
            numbered.add(number), _by_limit(of_file), int(numbered.rows[number])
        )
    return removals


def _by_limit(rows: pa.Table) -> dict[str, BitMap64]:
    return {
        LIMITS[rule]: BitMap64(rows.filter(pc.equal(rows["rule"], rule))["row"].to_numpy())
        for rule in sorted(pc.unique(rows["rule"]).to_pylist())
    }


def _whole(
    numbered: _Numbered, number: int, limit: str, earlier: FileRemovals | None
) -> FileRemovals:
    """All rows of a file: those that go by no other limit already go by this one."""
    live = int(numbered.rows[number])
    if earlier is None:
        return FileRemovals(numbered.add(number), {limit: None}, live)
    hidden = read_vector(numbered.snapshot.root, earlier.add.get("deletionVector"))
    rest = BitMap64(range(live + len(hidden))) - hidden - earlier.dead
    return FileRemovals(earlier.add, {**earlier.rows, limit: rest}, live)
