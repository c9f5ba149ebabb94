"""Verdicts on the rows of a table in place, from its narrow columns.

docs/semantics/tables.md has the rules: "Ages", "Ranks", "Bytes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.integer_sort import fits_with_places, lexsort
from retention.core.spans import Array
from retention.core.table_policy import LIMITS, TablePolicy
from retention.rules.tables.files import STAYS
from retention.rules.tables.matching import group_limits, group_of, limits_of, policy_of_rows
from retention.rules.tables.ticks import TimeColumns, due_ticks

DEAD_ROWS = pa.schema({"file": pa.int64(), "row": pa.int64(), "rule": pa.int8()})
"""Rows that go, ascending by file and row; `rule` is an index into `LIMITS`."""

COUNTED = ("max_rows_per_key", "max_rows", "max_bytes")
"""The limits that count rows, in the order of a pass."""
_MOST_BYTES = 2**62 - 1


@dataclass(frozen=True)
class RowNotes:
    """Rows that a limit cannot apply to, among those examined."""

    without_time: int = 0
    """Rows that stay under `max_age` or a count because they have no time."""
    without_key: int = 0
    """Rows that stay under `max_rows_per_key` because they have no key."""
    without_size: int = 0
    """Rows that count as 0 bytes because they have no size."""
    ahead: int = 0
    """Rows whose time is later than the instant of the pass."""

    def __add__(self, other: RowNotes) -> RowNotes:
        return RowNotes(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


@dataclass(frozen=True)
class RowRules:
    """The rules of a table at one instant, as functions of narrow rows; picklable.

    Narrow rows have `file` and `row` (int64; files are numbered by path), in whose order they are, and those columns of
    `narrow_columns` that the table has: `time` and `expires_at` in ticks, `size` int64, all others in their own types.
    """

    policy: TablePolicy
    times: TimeColumns
    as_of_ns: int

    def expire(self, rows: pa.Table) -> tuple[pa.Table, RowNotes]:
        """Decide by `expires_at` and `max_age`: the rows with a column `policy` (int64) and `rule` (int8, `STAYS`)."""
        policies = policy_of_rows(rows, self.policy)
        rule = np.full(rows.num_rows, STAYS, np.int8)
        for limit, cutoffs in due_ticks(self.policy, self.times, self.as_of_ns).items():
            column = "time" if limit == "max_age" else limit
            for number, cutoff in enumerate(cutoffs):
                if cutoff is not None:
                    ticks, is_null = _ticks(rows[column])
                    due = cutoff.takes(ticks) & ~is_null & (policies == number)
                    rule[due & (rule == STAYS)] = LIMITS.index(limit)
        decided = rows.append_column("policy", [policies]).append_column("rule", [rule])
        return decided, self._notes(decided)

    def cut_keys(self, rows: pa.Table) -> pa.Table:
        """Decide by `max_rows_per_key`, of all rows of some keys; shapes as those of `expire`."""
        allowed = group_limits(self.policy, "max_rows_per_key")
        if not allowed:
            return rows
        ranked, spare = self._spare(rows, allowed)
        return _with_rule(rows, ranked[spare <= 0], "max_rows_per_key")

    def spare_newer(self, rows: pa.Table) -> Array:
        """The newer rows of its key with which `max_rows_per_key` removes each row; shape (rows,), int64.

        None of a row that it removes already is above 0; -1 of rows that it does not count.

        Args:
            rows: all rows of some keys, as those of `expire`.
        """
        newer = np.full(rows.num_rows, -1)
        ranked, spare = self._spare(rows, group_limits(self.policy, "max_rows_per_key"))
        newer[ranked] = spare
        return newer

    def _spare(self, rows: pa.Table, allowed: dict[int, int]) -> tuple[Array, Array]:
        """The numbers of the rows that `max_rows_per_key` counts, and how many newer ones of its key each may get."""
        limited, groups = self._limited(rows, "max_rows_per_key")
        ranked = np.flatnonzero(limited & _has_all(rows, "key_") & _has_all(rows, "time"))
        if not len(ranked):
            return ranked, ranked
        part = _taken(rows, ranked)
        codes = [groups[ranked], *(_codes(part[name]) for name in _names(part, "key_"))]
        order = _newest_first([*self._ages(part, within_key=True), *codes], len(ranked))
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = np.any([np.diff(code[order]) != 0 for code in codes], axis=0)
        starts = np.flatnonzero(begins)
        ranks = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        return ranked[order], _allowed(allowed, groups[ranked][order]) - ranks

    def undecided(self, rows: pa.Table, limits: Sequence[str]) -> pa.Table:
        """The rows that go, and those that some of the limits may still remove."""
        some = rows["rule"].to_numpy() != STAYS
        for limit in limits:
            some = some | self._limited(rows, limit)[0]
        return rows if some.all() else rows.filter(pa.array(some))

    def cut_counts(self, rows: pa.Table, newer_rows: dict[int, int]) -> tuple[pa.Table, RowNotes]:
        """Decide by `max_rows`, and by `max_bytes` of rows, of all rows that files leave open.

        Args:
            rows: as those of `cut_keys`.
            newer_rows: as in `FileVerdicts`.
        """
        rows = self._cut_rows(rows, newer_rows)
        return self._cut_bytes(rows) if "size" in rows.schema.names else (rows, RowNotes())

    def _cut_rows(self, rows: pa.Table, newer_rows: dict[int, int]) -> pa.Table:
        for group, most in group_limits(self.policy, "max_rows").items():
            ranked = self._newest_first(rows, "max_rows", group)
            rows = _with_rule(rows, ranked[max(most - newer_rows.get(group, 0), 0) :], "max_rows")
        return rows

    def _cut_bytes(self, rows: pa.Table) -> tuple[pa.Table, RowNotes]:
        unsized, notes = rows["size"].is_null().to_numpy(), RowNotes()
        sizes = pc.fill_null(rows["size"], 0).to_numpy()
        for group, most in group_limits(self.policy, "max_bytes").items():
            ranked = self._newest_first(rows, "max_bytes", group)
            # The first sum beyond the limit fits into 64 bits; later ones need not.
            enough = min(most, _MOST_BYTES) + 1
            beyond = np.cumsum(np.clip(sizes[ranked], 0, enough)) >= enough
            rows = _with_rule(rows, ranked[np.logical_or.accumulate(beyond)], "max_bytes")
            notes += RowNotes(without_size=int(np.count_nonzero(unsized[ranked])))
        return rows, notes

    def _newest_first(self, rows: pa.Table, limit: str, group: int) -> Array:
        """The row numbers of a group's rows with a time that earlier limits leave, newest first."""
        limited, groups = self._limited(rows, limit)
        ranked = np.flatnonzero(limited & (groups == group) & _has_all(rows, "time"))
        ages = self._ages(_taken(rows, ranked), within_key=False)
        return ranked[_newest_first(ages, len(ranked))]

    def _limited(self, rows: pa.Table, limit: str) -> tuple[Array, Array]:
        """A mask of the rows that stay so far and that a limit counts, and the group of each row."""
        groups, allowed = group_of(self.policy, limit), group_limits(self.policy, limit)
        policies = rows["policy"].to_numpy()
        if not allowed:
            return np.zeros(len(policies), dtype=bool), policies
        counted = np.isin(groups, list(allowed))
        return counted[policies] & (rows["rule"].to_numpy() == STAYS), groups[policies]

    def _ages(self, rows: pa.Table, *, within_key: bool) -> list[Array]:
        """Keys for `_newest_first`."""
        time, order = _names(rows, "time"), _names(rows, "order_")
        first = [*order, *time] if within_key else [*time, *order]
        return [_descending(rows[name]) for name in reversed(first)]

    def _notes(self, rows: pa.Table) -> RowNotes:
        stays = rows["rule"].to_numpy() == STAYS
        by_age = [each.max_age_ns is not None for each in limits_of(self.policy)]
        counted = np.any([self._limited(rows, limit)[0] for limit in COUNTED], axis=0)
        timed = stays & (counted | np.array(by_age)[rows["policy"].to_numpy()])
        keyed, _ = self._limited(rows, "max_rows_per_key")
        ahead = np.zeros(rows.num_rows, dtype=bool)
        if self.times.time is not None and "time" in rows.schema.names:
            ticks, is_null = _ticks(rows["time"])
            ahead = stays & ~is_null & ~self.times.time.begun(self.as_of_ns).takes(ticks)
        return RowNotes(
            without_time=int(np.count_nonzero(timed & ~_has_all(rows, "time"))),
            without_key=int(np.count_nonzero(keyed & ~_has_all(rows, "key_"))),
            ahead=int(np.count_nonzero(ahead)),
        )


def dead_rows(rows: pa.Table) -> pa.Table:
    """The rows that go, of rows in order of files and positions; shape `DEAD_ROWS`."""
    named = rows.select(DEAD_ROWS.names)
    return named.filter(pc.not_equal(rows["rule"], STAYS)).cast(DEAD_ROWS).combine_chunks()


def _newest_first(keys: Sequence[Array], rows: int) -> Array:
    """The order of rows by the last key, then by the one before it, then from the last row to the first."""
    return rows - 1 - lexsort([key[::-1] for key in keys], rows)


def _with_rule(rows: pa.Table, numbers: Array, limit: str) -> pa.Table:
    """The rows, with a limit as the rule of those with the given numbers."""
    rule = rows["rule"].to_numpy().copy()
    rule[numbers] = LIMITS.index(limit)
    return rows.set_column(rows.schema.get_field_index("rule"), "rule", [rule])


def _taken(rows: pa.Table, numbers: Array) -> pa.Table:
    return rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))


def _names(rows: pa.Table, prefix: str) -> list[str]:
    return [name for name in rows.schema.names if name.startswith(prefix)]


def _has_all(rows: pa.Table, prefix: str) -> Array:
    """A mask of the rows without a null in the columns with this prefix."""
    every = np.ones(rows.num_rows, dtype=bool)
    for name in _names(rows, prefix):
        if rows[name].null_count:
            every &= rows[name].is_valid().to_numpy()
    return every


def _allowed(allowed: dict[int, int], groups: Array) -> Array:
    table = np.zeros(max(allowed) + 1, np.int64)
    table[list(allowed)] = list(allowed.values())
    return table[groups]


def _ticks(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """Values as int64, and a mask of the nulls among them."""
    if not column.null_count:
        return column.to_numpy(), np.zeros(len(column), dtype=bool)
    return pc.fill_null(column, 0).to_numpy(), column.is_null().to_numpy()


def _codes(column: pa.ChunkedArray) -> Array:
    """Numbers that are equal for equal values; the column has no nulls."""
    if pa.types.is_integer(column.type) and fits_with_places(values := column.to_numpy()):
        return values
    return column.combine_chunks().dictionary_encode().indices.to_numpy()


def _descending(column: pa.ChunkedArray) -> Array:
    """Integers that ascend from the greatest value to the least, with nulls as the last."""
    if column.type == pa.int64() and not column.null_count:
        return ~column.to_numpy()
    ranks = pc.rank(column, sort_keys="descending", tiebreaker="dense")
    return ranks.to_numpy(zero_copy_only=False)
