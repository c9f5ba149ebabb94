"""Verdicts on the files of a table in place, from bounds in its log: stays, goes by one rule, or its rows decide.

"From bounds" in docs/semantics/tables.md has the conditions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.table_policy import LIMITS, Column, TablePolicy
from retention.rules.tables.matching import (
    group_limits,
    group_of,
    limits_of,
    possible_policies,
    where_columns,
)
from retention.rules.tables.ticks import Cutoff, TimeColumns, due_ticks

STAYS, ROWS = -1, -2
"""Verdicts beside the numbers of `LIMITS`: no rule removes a row of the file, and its rows decide."""

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class FileVerdicts:
    """The verdict on each file, in order of the files."""

    verdicts: Array
    """int8, shape (files,): an index into `LIMITS`, `STAYS` or `ROWS`."""
    newer_rows: dict[int, int]
    """Group → its rows with a time in files that stay, all newer than any row which `max_rows` may remove."""
    possible: Array
    """A mask of the policies that rows of each file may have; shape (files, policies + 1)."""

    @property
    def to_read(self) -> Array:
        """The numbers of the files to read, because bounds leave them open."""
        return np.flatnonzero(self.verdicts == ROWS)


def narrow_columns(policy: TablePolicy) -> dict[str, Column]:
    """Name in narrow rows → the column of the table; only those by which rows decide."""
    columns, limits = policy.columns, limits_of(policy)
    counted = any(group_limits(policy, name) for name in ("max_rows_per_key", "max_rows"))
    counted |= columns.size is not None and bool(group_limits(policy, "max_bytes"))
    named: list[tuple[str, Column | None]] = []
    if counted or any(each.max_age_ns is not None for each in limits):
        named.append(("time", columns.time))
    if any(each.expires for each in limits):
        named.append(("expires_at", columns.expires_at))
    if group_limits(policy, "max_bytes"):
        named.append(("size", columns.size))
    if group_limits(policy, "max_rows_per_key"):
        named += [(f"key_{number}", column) for number, column in enumerate(columns.key)]
    if counted:
        named += [(f"order_{number}", column) for number, column in enumerate(columns.order)]
    named += [(f"where_{number}", column) for number, column in enumerate(where_columns(policy))]
    return {name: column for name, column in named if column is not None}


def decide_files(
    files: pa.Table, policy: TablePolicy, times: TimeColumns, as_of_ns: int
) -> FileVerdicts:
    """Decide files by the bounds of their rows.

    Args:
        files: one row per live file, ascending by path: `rows`, `bytes`, `time_min`, `time_max` and `time_nulls`, the
            same for `expires_at`, all int64, null if unknown (`rows` and `bytes` never are), the bounds in ticks; and
            the columns of `possible_policies`. Bounds may be wider than the values; `time_nulls` is exact.
        policy: the policy of the table.
        times: the types of its time columns.
        as_of_ns: the instant of the pass.

    Raises:
        ConfigError: a value of a policy has another type than its column.
    """
    possible = possible_policies(files, policy)
    verdicts = _due(files, possible, due_ticks(policy, times, as_of_ns))
    by_rows = ["max_rows_per_key", *(["max_bytes"] if policy.columns.size else [])]
    for limit in by_rows:
        limited = np.isin(group_of(policy, limit), list(group_limits(policy, limit)))
        verdicts[(verdicts == STAYS) & (possible & limited).any(axis=1)] = ROWS
    groups = group_of(policy, "max_rows")
    for group, most in group_limits(policy, "max_rows").items():
        _cut(files, verdicts, _Members.of(possible, groups == group), most)
    verdicts[(files["rows"].to_numpy() == 0) & (verdicts == ROWS)] = STAYS
    stay = verdicts == STAYS
    newer_rows = {
        group: int(_ranked(files)[stay & _Members.of(possible, groups == group).surely].sum())
        for group in group_limits(policy, "max_rows")
    }
    return FileVerdicts(verdicts, newer_rows, possible)


def files_beyond_bytes(files: pa.Table, policy: TablePolicy, possible: Array, gone: Array) -> Array:
    """A mask of the files that `max_bytes` removes completely, where no column has the size of a row.

    Args:
        files: as in `decide_files`.
        policy: the policy of the table.
        possible: as in `FileVerdicts`.
        gone: a mask of the files of which earlier limits leave no row.
    """
    beyond = np.zeros(files.num_rows, dtype=bool)
    if policy.columns.size is not None:
        return beyond
    sizes, (low, high), nulls = (
        files["bytes"].to_numpy(),
        _bounds(files, "time"),
        _nulls(files, "time"),
    )
    may_go = (nulls == 0) & (low > _LEAST) & (high < _MOST)
    for group, most in group_limits(policy, "max_bytes").items():
        members = _Members.of(possible, group_of(policy, "max_bytes") == group).surely & ~gone
        excess = int(sizes[members].sum()) - most
        oldest_first = np.flatnonzero(members & may_go)
        oldest_first = oldest_first[np.argsort(high[oldest_first], kind="stable")]
        removed = np.cumsum(sizes[oldest_first])
        fits = (removed <= excess) & (removed - sizes[oldest_first] < excess)
        beyond[oldest_first[np.logical_and.accumulate(fits)]] = True
    return beyond


@dataclass(frozen=True)
class _Members:
    """Masks of files: their rows count in one group, all of them, or some perhaps."""

    surely: Array
    maybe: Array

    @classmethod
    def of(cls, possible: Array, in_group: Array) -> _Members:
        maybe = (possible & in_group).any(axis=1)
        return cls(maybe & ~(possible & ~in_group).any(axis=1), maybe)


def _due(files: pa.Table, possible: Array, due: dict[str, list[Cutoff | None]]) -> Array:
    """The verdicts of `expires_at` and `max_age`; a file goes only if one of them removes every row."""
    expires_all, expires_none = _extent(files, "expires_at", possible, due["expires_at"])
    old_all, old_none = _extent(files, "time", possible, due["max_age"])
    verdicts = np.where(expires_none & old_none, STAYS, ROWS).astype(np.int8)
    verdicts[old_all & expires_none] = LIMITS.index("max_age")
    verdicts[expires_all] = LIMITS.index("expires_at")
    verdicts[files["rows"].to_numpy() == 0] = STAYS
    return verdicts


def _extent(
    files: pa.Table, column: str, possible: Array, cutoffs: list[Cutoff | None]
) -> tuple[Array, Array]:
    """Masks of the files with surely all rows due, and with surely none."""
    every = np.ones(files.num_rows, dtype=bool)
    none = every.copy()
    if any(cutoffs):
        (low, high), nulls = _bounds(files, column), _nulls(files, column)
        all_null = nulls == files["rows"].to_numpy()
    for number, cutoff in enumerate(cutoffs):
        other = ~possible[:, number]
        if cutoff is None:
            every &= other
        else:
            every &= other | (cutoff.takes_all(low, high) & (nulls == 0))
            none &= other | cutoff.takes_none(low, high) | all_null
    return every, none


def _cut(files: pa.Table, verdicts: Array, members: _Members, most: int) -> None:
    """Decide the files of one group under `max_rows`, in place.

    Files by time, with 100 rows each; of 250 rows the newest stay:

        |-- a: goes --|   |-- b: rows --|  |-- c: stays --|   |-- d: stays --|
        200 surely newer  200 newer, 300    at most 200        at most 100
    """
    alive = members.maybe & (verdicts < 0)
    nulls, rows = _nulls(files, "time"), files["rows"].to_numpy()
    at_most = np.where(alive, rows - np.maximum(nulls, 0), 0)
    if at_most.sum() <= most:
        return
    exact = alive & members.surely & (verdicts == STAYS) & (nulls >= 0)
    at_least = np.where(exact, rows - nulls, 0)
    low, high = _bounds(files, "time")
    stays = exact & ((_sum_from(high, at_most, low, "left") <= most) | (at_most == 0))
    goes = exact & (nulls == 0) & (_sum_from(low, at_least, high, "right") >= most)
    verdicts[alive & ~stays] = ROWS
    verdicts[goes & (rows > 0)] = LIMITS.index("max_rows")


def _sum_from(edges: Array, counts: Array, start: Array, side: str) -> Array:
    """For each start, the sum of the counts with an edge of at least that (`left`), or above it (`right`)."""
    order = np.argsort(edges)
    sums = np.append(np.cumsum(counts[order][::-1])[::-1], 0)
    return sums[np.searchsorted(edges[order], start, side)]  # type: ignore[call-overload]


def _ranked(files: pa.Table) -> Array:
    return files["rows"].to_numpy() - np.maximum(_nulls(files, "time"), 0)


def _bounds(files: pa.Table, column: str) -> tuple[Array, Array]:
    """The bounds of a column, without limit where they are unknown."""
    if f"{column}_min" not in files.schema.names:
        return np.full(files.num_rows, _LEAST), np.full(files.num_rows, _MOST)
    low, high = files[f"{column}_min"], files[f"{column}_max"]
    return pc.fill_null(low, _LEAST).to_numpy(), pc.fill_null(high, _MOST).to_numpy()


def _nulls(files: pa.Table, column: str) -> Array:
    """The null values of a column, -1 if their number is unknown."""
    if f"{column}_nulls" not in files.schema.names:
        return np.full(files.num_rows, 0 if column == "time" else -1)
    return pc.fill_null(files[f"{column}_nulls"], -1).to_numpy()
