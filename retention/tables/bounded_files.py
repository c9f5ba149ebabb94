"""The files of a table in place as its log bounds them, and bounds of passes over them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.bounds import Bounds
from retention.core.json_object import JsonObject
from retention.core.spans import Array
from retention.core.table_policy import LIMITS, TablePolicy
from retention.core.units import DAY, MILLISECOND, SECOND
from retention.delta.schema import leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.plan.forecast import HORIZONS_NS
from retention.plan.growth import NO_GROWTH, OBSERVED_NS, PIECES, Growth
from retention.rules.tables.files import decide_files, files_beyond_bytes
from retention.rules.tables.matching import limits_of, where_columns
from retention.rules.tables.ticks import TimeColumns
from retention.tables.bounds import by_path, file_bounds, live_rows, times_of
from retention.tables.held_rows import TableHolds
from retention.tables.holds import TableHoldRecords
from retention.tables.opened import OpenedTable


@dataclass(frozen=True)
class TableEstimate:
    """Bounds of a pass; a file without statistics is opened for its number of rows alone."""

    table: str
    as_of_ns: int
    removed_rows: Bounds
    by_rule: Mapping[str, Bounds]
    """Limit → the rows that it removes; limits that remove none are left out."""
    removed_bytes: Bounds
    """The lengths of files that are removed whole."""
    bytes_rewritten: Bounds
    """The lengths of files that lose some of their rows, as they are now."""
    files_removed: Bounds
    """The files that are removed whole."""
    files_read: int
    """The files that a plan would read."""
    files: int
    rows: int
    bytes: int
    version: int

    def as_json(self) -> JsonObject:
        """The bounds as JSON values."""
        return {
            "table": self.table,
            "as_of_ns": self.as_of_ns,
            "removed_rows": self.removed_rows.as_json(),
            "by_rule": {limit: rows.as_json() for limit, rows in self.by_rule.items()},
            "removed_bytes": self.removed_bytes.as_json(),
            "bytes_rewritten": self.bytes_rewritten.as_json(),
            "files_read": {"lower": self.files_read, "upper": self.files_read},
            "version": self.version,
        }


@dataclass(frozen=True)
class TableDue:
    """Bounds of the rows that a pass at `by_ns` removes, if nothing is written and no other pass runs until then."""

    by_ns: int
    """Nanoseconds since the epoch."""
    rows_at_least: int
    rows_at_most: int


@dataclass(frozen=True)
class TableForecast:
    """The removals due to time alone; empty if no limit depends on time."""

    next_due_ns: int | None = None
    """The instant before which no pass removes anything; None: no pass ever does, unless something is written."""
    forecast: tuple[TableDue, ...] = ()
    """Passes at the instant of the state, and at `HORIZONS_NS` after it."""


def empty_estimate(table: str, as_of_ns: int, version: int) -> TableEstimate:
    """The estimate of a table without columns, whose files are all gone."""
    none = Bounds(0, 0)
    return TableEstimate(
        table,
        as_of_ns,
        none,
        {},
        none,
        none,
        none,
        files_read=0,
        files=0,
        rows=0,
        bytes=0,
        version=version,
    )


def set_limits(policy: TablePolicy) -> tuple[str, ...]:
    """The limits that a table or one of its policies has, in the order of a pass."""
    limits = (policy.limits, *(each.limits for each in policy.policies))
    fields = {"max_age": "max_age_ns", "expires_at": "expires"}
    return tuple(
        limit
        for limit in LIMITS
        if any(getattr(each, fields.get(limit, limit)) not in {None, False} for each in limits)
    )


@dataclass(frozen=True)
class BoundedFiles:
    """The files of a version, as rules see them."""

    table: OpenedTable
    snapshot: DeltaSnapshot
    times: TimeColumns
    rows: Array
    bounds: pa.Table
    some_held: Array
    """A mask of the files that may have rows under a legal hold."""
    all_held: Array
    """A mask of the files with only such rows."""

    @classmethod
    def of(cls, table: OpenedTable, snapshot: DeltaSnapshot) -> BoundedFiles | None:
        """None: the table has no columns, because a directory has those of its files, which may all be gone."""
        if not leaves(snapshot.metadata):
            return None
        times, order = times_of(snapshot, table.policy), by_path(snapshot)
        rows = live_rows(snapshot, order)
        bounds = file_bounds(snapshot, table.policy, times, order, pa.array(rows))
        none = np.zeros(len(rows), dtype=bool)
        ordered = replace(snapshot, files=snapshot.files.take(pa.array(order)))
        holds = TableHolds.of(table, snapshot, TableHoldRecords(table).in_effect())
        some, every = holds.masks(ordered, rows) if holds.holds else (none, none)
        return cls(table, snapshot, times, rows, bounds, some, every)

    def estimate(self, as_of_ns: int) -> TableEstimate:
        """The bounds of a pass at an instant."""
        policy, bounds, rows = self.table.policy, self.bounds, self.rows
        decided = decide_files(bounds, policy, self.times, as_of_ns)
        whole, is_open = decided.verdicts >= 0, np.zeros(len(rows), dtype=bool)
        is_open[decided.to_read] = True

        def beyond(gone: Any) -> Any:
            return files_beyond_bytes(bounds, policy, decided.possible, gone) & ~whole

        # The more files other limits remove, the fewer exceed `max_bytes`.
        fewest, most = beyond(whole | is_open) & ~is_open, beyond(whole)
        surely = {limit: whole & (decided.verdicts == at) for at, limit in enumerate(LIMITS)}
        surely["max_bytes"] = surely["max_bytes"] | fewest
        surely = {limit: mask & ~self.some_held for limit, mask in surely.items()}
        perhaps = (is_open | most | (whole & self.some_held)) & ~self.all_held
        is_open |= whole & self.some_held

        def total(mask: Any, numbers: Array = rows) -> int:
            return int(numbers[mask].sum())

        sizes = bounds["bytes"].to_numpy()
        surely_whole = (whole | fewest) & ~self.some_held
        perhaps_whole = surely_whole | perhaps

        by_rule = {
            limit: Bounds(total(surely[limit]), total(surely[limit] | perhaps))
            for limit in set_limits(policy)
            if total(surely[limit] | perhaps)
        }
        return TableEstimate(
            self.table.name,
            as_of_ns,
            Bounds(total(surely_whole), total(perhaps_whole)),
            by_rule,
            Bounds(total(surely_whole, sizes), total(perhaps_whole, sizes)),
            Bounds(0, total(is_open, sizes)),
            Bounds(int(surely_whole.sum()), int(perhaps_whole.sum())),
            int(is_open.sum()),
            len(rows),
            int(rows.sum()),
            int(sizes.sum()),
            self.snapshot.version,
        )

    def with_policy(self, policy: TablePolicy) -> BoundedFiles:
        """The same files under another policy."""
        table, before = replace(self.table, policy=policy), self.table.policy
        if (policy.columns, where_columns(policy)) == (before.columns, where_columns(before)):
            return replace(self, table=table)
        return BoundedFiles.of(table, self.snapshot) or self

    def observed_growth(self) -> Growth:
        """The growth in the `OBSERVED_NS` before the newest row, by the rows that are left of that time."""
        _, last = self.first_and_last()
        if last is None or self.times.time is None:
            return NO_GROWTH
        since = self.times.time.cutoff(last - OBSERVED_NS).last
        recent = pc.greater(self.bounds["time_max"], since)
        first = self.times.time.due_from(pc.min(self.bounds["time_min"].filter(recent)).as_py())
        rows = int(self.rows[recent.to_numpy()].sum())
        return Growth(max(rows - 1, 0) * DAY / max(last - first, 1), self.mean_bytes)

    @property
    def mean_bytes(self) -> float:
        """The mean length of a row in the files; 0 without any."""
        size = pc.sum(self.bounds["bytes"], min_count=0).as_py()
        return size / self.rows.sum() if self.rows.sum() else 0.0

    def grown(self, growth: Growth, from_ns: int, until_ns: int) -> BoundedFiles:
        """The files as if rows had been written from one instant until another, each in one of up to 64 files.

        They are of no policy that is known, and their deadlines are not known either.
        """
        total = growth.amount(until_ns - from_ns)
        if not total:
            return self
        ends = np.unique(np.linspace(0, total, PIECES + 1).astype(np.int64))
        rows = np.diff(ends)
        columns: dict[str, Any] = {
            "rows": rows,
            "bytes": np.round(rows * growth.bytes_each).astype(np.int64),
        }
        if self.times.time is not None:
            instants = [from_ns + (until_ns - from_ns) * int(end) // total for end in ends]
            ticks = [self.times.time.begun(instant).last for instant in instants]
            columns |= {"time_min": ticks[:-1], "time_max": ticks[1:], "time_nulls": rows * 0}
        added = pa.table(
            {
                field.name: pa.array(columns[field.name], field.type)
                if field.name in columns
                else pa.array([False] * len(rows))
                if pa.types.is_boolean(field.type)
                else pa.nulls(len(rows), field.type)
                for field in self.bounds.schema
            }
        )
        bounds = pa.concat_tables([self.bounds, added])
        may_be_held = np.full(len(rows), fill_value=self.some_held.any())
        return replace(
            self,
            rows=np.append(self.rows, rows),
            bounds=bounds,
            some_held=np.append(self.some_held, may_be_held),
            all_held=np.append(self.all_held, np.zeros(len(rows), dtype=bool)),
        )

    def due_since(self, as_of_ns: int) -> int:
        """The instant of `TableState.since_ns`, if a pass at `as_of_ns` surely removes rows."""
        written_ms = pc.min(self.snapshot.files["modification_time"]).as_py()
        last_ns = self.table.history.last_as_of_ns() or 0
        start_ns = min(max(last_ns, written_ms * MILLISECOND), as_of_ns)
        seconds = range(start_ns // SECOND, as_of_ns // SECOND + 1)
        first = bisect_right(
            seconds, 0, key=lambda at: self.estimate(at * SECOND).removed_rows.lower
        )
        return min(max((seconds.start + first) * SECOND, start_ns), as_of_ns)

    def forecast(self, as_of_ns: int) -> TableForecast:
        """The forecast of passes at and after an instant."""
        if not {"max_age", "expires_at"} & {*set_limits(self.table.policy)}:
            return TableForecast()
        instants = (as_of_ns, *(as_of_ns + ahead for ahead in HORIZONS_NS))
        removed = [self.estimate(instant).removed_rows for instant in instants]
        due = (
            TableDue(instant, rows.lower, rows.upper)
            for instant, rows in zip(instants, removed, strict=True)
        )
        next_ns = as_of_ns if removed[0].upper else self._next_due(as_of_ns)
        return TableForecast(next_ns, tuple(due))

    def first_and_last(self) -> tuple[int | None, int | None]:
        """The bounds of the times of all rows, nanoseconds since the epoch."""
        if self.times.time is None or self.bounds["time_min"].null_count:
            return None, None
        ticks = pc.min(self.bounds["time_min"]), pc.max(self.bounds["time_max"])
        first, last = (
            None if tick is None else self.times.time.due_from(tick)
            for tick in (each.as_py() for each in ticks)
        )
        return first, last

    def _next_due(self, as_of_ns: int) -> int | None:
        """The first instant at which a row may be due by time, if a pass at `as_of_ns` removes none."""
        policy, times = self.table.policy, self.times
        possible = decide_files(self.bounds, policy, times, as_of_ns).possible
        instants: list[int] = []
        for at, limits in enumerate(limits_of(policy)):
            for name, time, age_ns in (
                ("time_min", times.time, limits.max_age_ns),
                ("expires_at_min", times.expires_at, 0 if limits.expires else None),
            ):
                if time is not None and age_ns is not None:
                    first = pc.min(self.bounds[name].filter(pa.array(possible[:, at]))).as_py()
                    instants += [] if first is None else [time.due_from(first) + age_ns]
        return max(min(instants), as_of_ns) if instants else None
