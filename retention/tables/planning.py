"""Planning a pass over a table in place: its log decides most files, and narrow rows decide the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from retention.core.spans import Array
from retention.core.table_policy import LIMITS
from retention.delta.features import refuse_unsafe
from retention.delta.schema import leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import bitmap_of, read_vector
from retention.engine_port import Engine
from retention.planners.table_rows import DecidedRows, NarrowFile, decide_rows
from retention.rules.tables.files import (
    FileVerdicts,
    decide_files,
    files_beyond_bytes,
    narrow_columns,
)
from retention.rules.tables.rows import RowRules
from retention.tables.access import access_of
from retention.tables.bounds import (
    by_path,
    file_bounds,
    live_rows,
    times_of,
)
from retention.tables.held_rows import TableHolds, without_held
from retention.tables.holds import TableHoldRecords
from retention.tables.narrow import NarrowReader, shown_columns
from retention.tables.opened import OpenedTable
from retention.tables.permits import findings_of
from retention.tables.plan import FileRemovals, TablePlan, Unlimited


@dataclass(frozen=True)
class _Numbered:
    """A table with its files numbered by path, as rules number them."""

    snapshot: DeltaSnapshot
    order: Array
    """The rows of the snapshot's files, by number."""
    rows: Array
    """The live rows of each file, by number."""

    def adds(self, numbers: Array) -> dict[int, dict[str, Any]]:
        """Number of a file → its `add` action."""
        rows = self.order[numbers].tolist()
        return dict(zip(numbers.tolist(), self.snapshot.adds_of(rows), strict=True))


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
    return plan_snapshot(table, access_of(table).read(table), as_of_ns, choose_engine)


def plan_snapshot(
    table: OpenedTable,
    snapshot: DeltaSnapshot,
    as_of_ns: int,
    choose_engine: Callable[[int], Engine],
) -> TablePlan:
    """Plan a pass over a version of the table, as `plan_table`."""
    refuse_unsafe(snapshot)
    if not leaves(snapshot.metadata):
        return access_of(table).planned(_empty(table, snapshot, as_of_ns), snapshot)
    policy, times = table.policy, times_of(snapshot, table.policy)
    # Later steps read these columns, too; a wrong name is refused before them.
    NarrowReader.of(snapshot, shown_columns(policy.columns))
    order = by_path(snapshot)
    numbered = _Numbered(snapshot, order, live_rows(snapshot, order))
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
        int(numbered.rows.sum()),
    )
    done = _without_held(table, access_of(table).planned(plan, snapshot), numbered, choose_engine)
    return replace(done, guards=findings_of(table.settings, done))


def _without_held(
    table: OpenedTable,
    plan: TablePlan,
    numbered: _Numbered,
    choose_engine: Callable[[int], Engine],
) -> TablePlan:
    """The plan without the rows under legal holds, which are read after the table.

    Raises:
        DamagedError: a record of a legal hold is missing or cannot be read.
        RefusedError: a legal hold does not fit the table any more.
    """
    in_effect = TableHoldRecords(table).in_effect()
    if not in_effect:
        return plan
    holds = TableHolds.of(table, numbered.snapshot, in_effect)
    only_whole = {"max_bytes"} if plan.policy.columns.size is None else set[str]()
    left = without_held(holds, plan.removals, only_whole, choose_engine)
    reduced = replace(plan, removals=left.removals, holds=holds.ids, kept_by_holds=left.kept)
    done = access_of(table).planned(reduced, numbered.snapshot)
    held = left.whole + len(reduced.removals) - len(done.removals)
    passed_over = dict(plan.passed_over) | ({"with_rows_under_legal_holds": held} if held else {})
    return replace(done, passed_over=passed_over)


def _empty(table: OpenedTable, snapshot: DeltaSnapshot, as_of_ns: int) -> TablePlan:
    """The plan of a table without columns: a directory has those of its files, which may all be gone."""
    table_id = snapshot.metadata["id"]
    return TablePlan(
        *(table.name, table.location, table_id, snapshot.version, as_of_ns, table.policy, (), 0)
    )


def _tasks(table: OpenedTable, numbered: _Numbered, verdicts: FileVerdicts) -> Iterator[NarrowFile]:
    """The files to read, because bounds leave them open."""
    reader = NarrowReader.of(numbered.snapshot, narrow_columns(table.policy))
    for number, add in numbered.adds(verdicts.to_read).items():
        yield reader.task(number, add, int(numbered.rows[number]))


def _removals(
    numbered: _Numbered, verdicts: FileVerdicts, decided: DecidedRows
) -> dict[int, FileRemovals]:
    """Number of a file → the rows that go from it."""
    removals = {
        number: FileRemovals(
            add, {LIMITS[verdicts.verdicts[number]]: None}, int(numbered.rows[number])
        )
        for number, add in numbered.adds(np.flatnonzero(verdicts.verdicts >= 0)).items()
    }
    numbers, rows, rules = (column.to_numpy() for column in decided.dead.columns)
    changes = np.flatnonzero(np.diff(numbers, prepend=-1))
    adds = numbered.adds(numbers[changes])
    for start, end in pairwise([*changes.tolist(), len(numbers)]):
        number, by_limit = int(numbers[start]), _by_limit(rows[start:end], rules[start:end])
        removals[number] = FileRemovals(adds[number], by_limit, int(numbered.rows[number]))
    return removals


def _by_limit(rows: Array, rules: Array) -> dict[str, BitMap64]:
    """Limit → the positions of the rows of a file that go by it."""
    counts = np.bincount(rules)
    return {
        LIMITS[rule]: bitmap_of(rows[rules == rule]) for rule in np.flatnonzero(counts).tolist()
    }


def _whole(
    numbered: _Numbered, number: int, limit: str, earlier: FileRemovals | None
) -> FileRemovals:
    """All rows of a file: those that go by no other limit already go by this one."""
    live = int(numbered.rows[number])
    if earlier is None:
        add = numbered.adds(np.array([number]))[number]
        return FileRemovals(add, {limit: None}, live)
    hidden = read_vector(numbered.snapshot.root, earlier.add.get("deletionVector"))
    rest = BitMap64(range(live + len(hidden))) - hidden - earlier.dead
    return FileRemovals(earlier.add, {**earlier.rows, limit: rest}, live)
