"""The state of a table in place, and bounds of what a pass would remove, from its log alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.core.table_policy import LIMITS
from retention.delta.features import refusal
from retention.delta.schema import leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.plan.estimate_ranges import Bounds
from retention.rules.tables.files import decide_files, files_beyond_bytes
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
    refused: str | None
    """The sentence that refuses removals from it; None: they are not refused."""

    @property
    def is_behind(self) -> bool:
        """Whether a pass would remove a row, or is refused."""
        return self.due is None or self.due.lower > 0

    def as_json(self) -> JsonObject:
        """The state as JSON values."""
        return {**vars(self), "due": self.due and self.due.as_json()}


def estimate_table(table: OpenedTable, as_of_ns: int) -> TableEstimate:
    """Bound what a pass would remove, by the log of the table.

    Raises:
        RetentionError: as `planning.plan_table`, except that a refused table is estimated.
    """
    return _estimated(table, access_of(table).read(table), as_of_ns)


def state_of_table(table: OpenedTable, as_of_ns: int) -> TableState:
    """The state of a table at an instant.

    Raises:
        RetentionError: as `estimate_table`.
    """
    snapshot = access_of(table).read(table)
    estimate, refused = _estimated(table, snapshot, as_of_ns), refusal(snapshot)
    return TableState(
        table.name,
        table.location,
        estimate.rows,
        int(pc.sum(snapshot.files["size"], min_count=0).as_py()),
        estimate.files,
        snapshot.version,
        None if refused is not None else estimate.removed_rows,
        refused,
    )


def _estimated(table: OpenedTable, snapshot: DeltaSnapshot, as_of_ns: int) -> TableEstimate:
    if not leaves(snapshot.metadata):
        return TableEstimate(table.name, as_of_ns, Bounds(0, 0), {}, 0, 0, 0, snapshot.version)
    policy, times, order = table.policy, times_of(snapshot, table.policy), by_path(snapshot)
    rows = live_rows(snapshot, order)
    bounds = file_bounds(snapshot, policy, times, order, pa.array(rows))
    decided = decide_files(bounds, policy, times, as_of_ns)
    whole, is_open = decided.verdicts >= 0, np.zeros(len(order), dtype=bool)
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
        limit: Bounds(total(mask), total(mask | perhaps))
        for limit, mask in surely.items()
        if _is_set(table, limit) and total(mask | perhaps)
    }
    return TableEstimate(
        table.name,
        as_of_ns,
        Bounds(total(whole | fewest), total(whole | perhaps)),
        by_rule,
        int(is_open.sum()),
        len(order),
        int(rows.sum()),
        snapshot.version,
    )


def _is_set(table: OpenedTable, limit: str) -> bool:
    """Whether the table or one of its policies has a limit."""
    limits = (table.policy.limits, *(policy.limits for policy in table.policy.policies))
    name = {"max_age": "max_age_ns", "expires_at": "expires"}.get(limit, limit)
    return any(getattr(each, name) not in {None, False} for each in limits)
