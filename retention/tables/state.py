"""The state of a table in place, and bounds of what a pass would remove, from its log alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.core.spans import Array
from retention.core.table_policy import LIMITS, TablePolicy
from retention.core.units import MILLISECOND, SECOND
from retention.delta.features import refusal
from retention.delta.schema import leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.plan.estimate_ranges import Bounds
from retention.plan.forecast import HORIZONS_NS
from retention.rules.tables.files import decide_files, files_beyond_bytes
from retention.rules.tables.matching import limits_of
from retention.rules.tables.ticks import TimeColumns
from retention.tables.access import access_of
from retention.tables.bounds import by_path, file_bounds, live_rows, times_of
from retention.tables.opened import OpenedTable


@dataclass(frozen=True)
class TableEstimate:
    """Bounds of a pass; a file without statistics is opened for its number of rows alone."""

    table: str
    as_of_ns: int
    removed_rows: Bounds
    by_rule: Mapping[str, Bounds]
    """Limit → the rows that it removes; limits that remove none are left out."""
    files_read: int
    """The files that a plan would read."""
    files: int
    rows: int
    version: int

    def as_json(self) -> JsonObject:
        """The bounds as JSON values."""
        return {
            "table": self.table,
            "as_of_ns": self.as_of_ns,
            "removed_rows": self.removed_rows.as_json(),
            "by_rule": {limit: rows.as_json() for limit, rows in self.by_rule.items()},
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


@dataclass(frozen=True)
class TableState:
    """The contents of a table, and its lag behind its limits."""

    table: str
    location: str
    rows: int
    bytes: int
    files: int
    version: int
    due: Bounds | None
    """The rows that a pass would remove now; None: nothing may be removed from the table."""
    since_ns: int | None
    """The instant since which a pass would surely have removed some of them, to the second; None: of none is it sure.

    It is no earlier than the last applied pass, nor than the table's oldest file.
    """
    refused: str | None
    """The sentence that refuses removals from it; None: they are not refused."""
    format: str
    first_ts_ns: int | None
    """The bound of the oldest time by the log's statistics; None: it is unknown, or the table has no times."""
    last_ts_ns: int | None
    ahead: TableForecast
    """The amounts due and their times."""

    def behind_ns(self, as_of_ns: int) -> int:
        """The time by which the table is behind its limits at an instant, nanoseconds; 0: it is not."""
        return 0 if self.since_ns is None else max(as_of_ns - self.since_ns, 0)

    def as_json(self) -> JsonObject:
        """The state as JSON values."""
        numbers = {**vars(self), "due": self.due and self.due.as_json()}
        ahead = numbers.pop("ahead")
        return numbers | asdict(ahead) | {"forecast": [asdict(due) for due in ahead.forecast]}


def estimate_table(table: OpenedTable, as_of_ns: int) -> TableEstimate:
    """Bound what a pass would remove, by the log of the table.

    Raises:
        RetentionError: as `planning.plan_table`, except that a refused table is estimated.
    """
    snapshot = access_of(table).read(table)
    return _estimated(table, snapshot, _Bounded.of(table, snapshot), as_of_ns)


def state_of_table(table: OpenedTable, as_of_ns: int) -> TableState:
    """The state of a table at an instant.

    Raises:
        RetentionError: as `estimate_table`.
    """
    snapshot = access_of(table).read(table)
    bounded, refused = _Bounded.of(table, snapshot), refusal(snapshot)
    estimate = _estimated(table, snapshot, bounded, as_of_ns)
    return TableState(
        table.name,
        table.location,
        estimate.rows,
        int(pc.sum(snapshot.files["size"], min_count=0).as_py()),
        estimate.files,
        snapshot.version,
        None if refused is not None else estimate.removed_rows,
        bounded.due_since(as_of_ns) if bounded and estimate.removed_rows.lower else None,
        refused,
        table.format,
        *((None, None) if bounded is None else bounded.first_and_last()),
        TableForecast() if bounded is None else bounded.forecast(as_of_ns),
    )


def _estimated(
    table: OpenedTable, snapshot: DeltaSnapshot, bounded: _Bounded | None, as_of_ns: int
) -> TableEstimate:
    if bounded is None:
        return TableEstimate(table.name, as_of_ns, Bounds(0, 0), {}, 0, 0, 0, snapshot.version)
    return bounded.estimate(as_of_ns)


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
class _Bounded:
    """The files of a version, as rules see them."""

    table: OpenedTable
    snapshot: DeltaSnapshot
    times: TimeColumns
    rows: Array
    bounds: pa.Table

    @classmethod
    def of(cls, table: OpenedTable, snapshot: DeltaSnapshot) -> _Bounded | None:
        """None: the table has no columns, because a directory has those of its files, which may all be gone."""
        if not leaves(snapshot.metadata):
            return None
        times, order = times_of(snapshot, table.policy), by_path(snapshot)
        rows = live_rows(snapshot, order)
        bounds = file_bounds(snapshot, table.policy, times, order, pa.array(rows))
        return cls(table, snapshot, times, rows, bounds)

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
        perhaps = is_open | most

        def total(mask: Any) -> int:
            return int(rows[mask].sum())

        by_rule = {
            limit: Bounds(total(surely[limit]), total(surely[limit] | perhaps))
            for limit in set_limits(policy)
            if total(surely[limit] | perhaps)
        }
        return TableEstimate(
            self.table.name,
            as_of_ns,
            Bounds(total(whole | fewest), total(whole | perhaps)),
            by_rule,
            int(is_open.sum()),
            len(rows),
            int(rows.sum()),
            self.snapshot.version,
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
