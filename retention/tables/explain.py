"""Explanations of rows of a table in place: which go and by which limit, when the others will, and which runs removed.

A plan of the whole table decides; the rows of a key tell how many newer ones each of them may get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.table_policy import LIMITS, Column, TablePolicy
from retention.delta.snapshot import DeltaSnapshot
from retention.engine_port import Engine
from retention.errors import MissingMessageError
from retention.planners.table_rows import TICKS, NarrowFile, matching_rows
from retention.rules.tables.files import narrow_columns
from retention.rules.tables.matching import group_limits, group_of, limits_of
from retention.rules.tables.rows import RowRules
from retention.tables.access import access_of
from retention.tables.bounds import (
    by_path,
    is_partition,
    live_rows,
    of_ticks,
    partition_values,
    times_of,
)
from retention.tables.held_rows import TableHolds
from retention.tables.holds import TableHoldRecords
from retention.tables.narrow import NarrowReader, shown_columns, shown_name
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan
from retention.tables.planning import plan_snapshot
from retention.tables.removals import Key, Removal, removals_of_key, removals_of_row
from retention.tables.removed_rows import KEPT, limit_of_rows

ChooseEngine = Callable[[int], Engine]


@dataclass(frozen=True)
class LiveRow:
    """A row of the table in a pass."""

    file: str
    row: int
    values: Mapping[str, Any]
    """Time, expiry, key and order by name."""
    limit: str | None
    """The limit that removes it; None: it is kept."""
    policy: int | None
    """The place of its policy in the configuration, from 0 on; None: it matches none."""
    due: Mapping[str, int]
    """`max_age` and `expires_at`, as far as they concern it → the instant from which it is due, nanoseconds."""
    newer: Mapping[str, int]
    """A limit that counts it → the newer rows, of its key or all, or the bytes, with which it is removed."""
    has_time: bool
    has_key: bool
    legal_holds: Mapping[str, str] = field(default_factory=dict)
    """Legal hold that covers it → the reason of the hold."""


@dataclass(frozen=True)
class TableExplanation:
    """The rows of a key, or one row, in a pass at one instant."""

    table: str
    as_of_ns: int
    key: Mapping[str, Any] | None
    """None: a row by its place."""
    rows: tuple[LiveRow, ...]
    """By time; rows without one are the last."""
    removed: tuple[Removal, ...]
    """Oldest run first."""
    without_evidence: tuple[str, ...] = ()
    """The runs that recorded no such keys."""


def explain_key(
    table: OpenedTable,
    wanted: Callable[[DeltaSnapshot], Key],
    as_of_ns: int,
    choose_engine: ChooseEngine,
) -> TableExplanation:
    """Explain the rows of a key.

    Args:
        table: the table.
        wanted: reads the key, in the types of the table's columns.
        as_of_ns: the instant of the pass.
        choose_engine: the engine that reads a number of bytes.

    Raises:
        MissingMessageError: neither the table nor the evidence has such a row.
        RetentionError: as planning.
    """
    snapshot = access_of(table).read(table)
    key = wanted(snapshot)
    rows = _Rows.planned(table, snapshot, as_of_ns, choose_engine)
    columns = table.policy.columns.key
    live = rows.explained(rows.matching({f"key_{columns.index(each)}": key[each] for each in key}))
    removals = removals_of_key(table, snapshot, key)
    named = {shown_name(column): value.as_py() for column, value in key.items()}
    if not live and not removals.removed:
        raise MissingMessageError(
            f"{table.name}: no row has the key {', '.join(map(str, named.values()))}, and no run with evidence of such "
            "keys removed one"
        )
    return TableExplanation(
        table.name, as_of_ns, named, live, removals.removed, removals.without_evidence
    )


def explain_row(
    table: OpenedTable, file: str, row: int, as_of_ns: int, choose_engine: ChooseEngine
) -> TableExplanation:
    """Explain one row by its file, as `PLACE` names it, and its position in it.

    Raises:
        MissingMessageError: neither the table nor the records of runs have such a row.
        RetentionError: as planning.
    """
    snapshot = access_of(table).read(table)
    rows = _Rows.planned(table, snapshot, as_of_ns, choose_engine)
    live = rows.explained(rows.around(file, row))
    at_place = tuple(each for each in live if (each.file, each.row) == (file, row))
    removed = removals_of_row(table, file, row)
    if not at_place and not removed:
        raise MissingMessageError(
            f"{table.name}: {file} has no live row {row}, and no run with a record removed one; name the file and the "
            "row as `plan --rows` does"
        )
    return TableExplanation(table.name, as_of_ns, None, at_place, removed)


@dataclass(frozen=True)
class _Rows:
    """The rows of a table, and the plan that decides them."""

    reader: NarrowReader
    """Reads every column of a limit, under the names of rules."""
    rules: RowRules
    plan: TablePlan
    order: Array
    """The rows of the snapshot's files, in the order by which rules number them."""
    live: Array
    """The live rows of each, in that order."""
    choose_engine: ChooseEngine
    holds: TableHolds
    reasons: Mapping[str, str]
    """Legal hold in effect → its reason."""

    @classmethod
    def planned(
        cls,
        table: OpenedTable,
        snapshot: DeltaSnapshot,
        as_of_ns: int,
        choose_engine: ChooseEngine,
    ) -> _Rows:
        """Plan a pass over the whole table."""
        plan = plan_snapshot(table, snapshot, as_of_ns, choose_engine)
        reader = NarrowReader.of(snapshot, _rule_columns(table.policy))
        order = by_path(snapshot)
        rules = RowRules(table.policy, times_of(snapshot, table.policy), as_of_ns)
        in_effect, live = TableHoldRecords(table).in_effect(), live_rows(snapshot, order)
        typed = TableHolds.of(table, snapshot, in_effect)
        reasons = {hold.id: hold.reason for hold in in_effect}
        return cls(reader, rules, plan, order, live, choose_engine, typed, reasons)

    @cached_property
    def paths(self) -> list[str]:
        """The path of each file from the table's location on."""
        return [unquote(path) for path in self._snapshot.files["path"].take(self.order).to_pylist()]

    @property
    def _snapshot(self) -> DeltaSnapshot:
        return self.reader.snapshot

    def matching(self, values: Mapping[str, pa.Scalar], file: int | None = None) -> pa.Table:
        """The narrow rows with these values, of one file or of all."""
        numbers = self._possible(values) if file is None else [file]
        tasks = [self._task(number, self.reader) for number in numbers]
        weights = [task.narrow_bytes for task in tasks]
        engine = self.choose_engine(sum(weights))
        parts = engine.map(partial(matching_rows, values), tasks, weights)
        return pa.concat_tables([self._none(), *parts])

    def _task(self, number: int, reader: NarrowReader) -> NarrowFile:
        add = self._snapshot.add_of(int(self.order[number]))
        return reader.task(number, add, int(self.live[number]))

    def around(self, file: str, row: int) -> pa.Table:
        """The narrow rows of the key of a row; if it has none, or no limit of keys counts it, the row alone."""
        if file not in self.paths:
            return self._none()
        place = self.matching({"row": pa.scalar(row, pa.int64())}, self.paths.index(file))
        names = [name for name in place.schema.names if name.startswith("key_")]
        values = {name: place[name][0] for name in names if place.num_rows}
        is_limited = bool(group_limits(self.rules.policy, "max_rows_per_key"))
        if not is_limited or not values or not all(each.is_valid for each in values.values()):
            return place
        return self.matching(values)

    def explained(self, narrow: pa.Table) -> tuple[LiveRow, ...]:
        """The rows, by time, file and position."""
        if not narrow.num_rows:
            return ()
        by = ["time"] if "time" in narrow.schema.names else []
        order = [(name, "ascending") for name in (*by, "file", "row")]
        decided, _ = self.rules.expire(narrow.take(pc.sort_indices(narrow, sort_keys=order)))
        spare = self.rules.spare_newer(decided).tolist()
        limits = self._limits(decided)
        values = self._values(decided).to_pylist()
        keys = [name for name in decided.schema.names if name.startswith("key_")]
        held = self._held(decided)
        return tuple(
            LiveRow(
                self.paths[row["file"]],
                row["row"],
                values[at],
                limits[at],
                row["policy"] if row["policy"] < len(self.rules.policy.policies) else None,
                self._due(row),
                self._newer(row, spare[at]) if limits[at] is None else {},
                has_time=row.get("time") is not None,
                has_key=bool(keys) and all(row[name] is not None for name in keys),
                legal_holds=held[at],
            )
            for at, row in enumerate(decided.to_pylist())
        )

    def _held(self, rows: pa.Table) -> list[dict[str, str]]:
        """The legal holds that cover each row, with their reasons."""
        numbers = rows["file"].unique().to_pylist() if self.holds.holds else []
        tasks = [partial(self._task, number) for number in numbers]
        of_file = dict(zip(numbers, self.holds.covered(tasks, self.choose_engine), strict=True))
        return [
            {
                hold: self.reasons[hold]
                for hold, positions in of_file.get(file, {}).items()
                if row in positions
            }
            for file, row in zip(rows["file"].to_pylist(), rows["row"].to_pylist(), strict=True)
        ]

    def _none(self) -> pa.Table:
        place = [pa.field("file", pa.int64()), pa.field("row", pa.int64())]
        columns = [pa.field(each.name, each.narrow_type) for each in self.reader.columns]
        return pa.schema([*place, *columns]).empty_table()

    def _possible(self, values: Mapping[str, pa.Scalar]) -> list[int]:
        """The numbers of the files whose partition does not exclude these values."""
        possible = np.ones(len(self.order), dtype=bool)
        for name, leaf in self.reader.leaves.items():
            if name in values and is_partition(self._snapshot, leaf):
                equal = pc.equal(partition_values(self._snapshot, leaf, self.order), values[name])
                possible &= equal.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(possible).tolist()

    def _limits(self, rows: pa.Table) -> list[str | None]:
        """The limit by which the plan removes each row."""
        removals = {unquote(each.add["path"]): each.rows for each in self.plan.removals}
        limits: list[str | None] = []
        for file, row in zip(rows["file"].to_pylist(), rows["row"].to_numpy(), strict=True):
            [limit] = limit_of_rows(np.array([row]), removals.get(self.paths[file], {}))
            limits.append(None if limit == KEPT else LIMITS[limit])
        return limits

    def _values(self, rows: pa.Table) -> pa.Table:
        """The columns that are shown, by their names and in their own types."""
        names = {column: name for name, column in _rule_columns(self.rules.policy).items()}
        kinds = {column.name: column.type for column in self.reader.columns}
        shown = {
            name: (names[column], rows[names[column]])
            for name, column in shown_columns(self.rules.policy.columns).items()
        }
        return pa.table(
            {
                name: of_ticks(values, kinds[rule]) if rule in TICKS else values
                for name, (rule, values) in shown.items()
            }
        )

    def _due(self, row: Mapping[str, Any]) -> dict[str, int]:
        limits, times = limits_of(self.rules.policy)[row["policy"]], self.rules.times
        due: dict[str, int] = {}
        if limits.expires and times.expires_at and row.get("expires_at") is not None:
            due["expires_at"] = times.expires_at.due_from(row["expires_at"])
        if limits.max_age_ns is not None and times.time and row.get("time") is not None:
            due["max_age"] = times.time.due_from(row["time"]) + limits.max_age_ns
        return due

    def _newer(self, row: Mapping[str, Any], spare: int) -> dict[str, int]:
        newer = {"max_rows_per_key": spare} if spare > 0 else {}
        if row.get("time") is None:
            return newer
        for limit in ("max_rows", "max_bytes"):
            group = int(group_of(self.rules.policy, limit)[row["policy"]])
            most = group_limits(self.rules.policy, limit).get(group)
            if most is not None:
                newer[limit] = most
        return newer


def _rule_columns(policy: TablePolicy) -> dict[str, Column]:
    """Name in narrow rows → column: all that limits read, or people see."""
    columns = policy.columns
    named: dict[str, Column | None] = {
        "time": columns.time,
        "expires_at": columns.expires_at,
        **{f"key_{number}": column for number, column in enumerate(columns.key)},
        **{f"order_{number}": column for number, column in enumerate(columns.order)},
        **narrow_columns(policy),
    }
    return {name: column for name, column in named.items() if column is not None}
