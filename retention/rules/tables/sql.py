"""The rules of a table in place as statements of Spark SQL, to read, and to run by hand.

"As SQL" in docs/semantics/tables.md says how they relate to a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from retention.core.spans import Array
from retention.core.table_policy import Column, Scalar, TablePolicy
from retention.core.units import MICROSECOND
from retention.rules.tables.matching import group_limits, group_of
from retention.rules.tables.rows import COUNTED
from retention.rules.tables.ticks import TICK_NS, Cutoff, Kind, TimeColumns, due_ticks

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DELETE = "DELETE FROM {table} WHERE {due}"
_MERGE = """\
MERGE INTO {table} AS `live` USING (
  SELECT {parts}, min(CASE WHEN NOT ({beyond}) THEN `age` END) AS `oldest`
  FROM (
    SELECT {columns}, {count} OVER (
      PARTITION BY {partition} ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS `count`
    FROM {table} WHERE {ranked}
  )
  GROUP BY {parts} HAVING bool_or({beyond})
) AS `kept`
ON {same} AND (`kept`.`oldest` IS NULL OR {age} < `kept`.`oldest`)
WHEN MATCHED THEN DELETE"""
_WHOLE_FILES = "-- max_bytes removes whole files, which no statement can name"


def statements(table: str, policy: TablePolicy, times: TimeColumns, as_of_ns: int) -> list[str]:
    """One statement for each limit, in the order of a pass, to be run in that order.

    They remove what a pass removes; of rows that neither time nor order tells apart, those at a count all stay.

    Args:
        table: the table as a statement names it, as "lake.events" or "delta.`s3://lake/events`".
        policy: the policy of the table.
        times: the types of its time columns.
        as_of_ns: the instant of the pass.
    """
    columns = policy.columns
    due = due_ticks(policy, times, as_of_ns)
    timed = (
        (columns.expires_at, times.expires_at, due["expires_at"]),
        (columns.time, times.time, due["max_age"]),
    )
    written = [
        _DELETE.format(
            table=table, due=_by_policy(policy, _are_due(quoted(column), type_.kind, cutoffs))
        )
        for column, type_, cutoffs in timed
        if column is not None and type_ is not None and any(cutoffs)
    ]
    written += [
        _merge(table, policy, limit)
        for limit in COUNTED
        if group_limits(policy, limit) and (limit != "max_bytes" or columns.size is not None)
    ]
    is_by_file = columns.size is None and group_limits(policy, "max_bytes")
    return [*written, _WHOLE_FILES] if is_by_file else written


def quoted(column: Column) -> str:
    """A column as SQL names it.

    >>> quoted(("event", "at"))
    '`event`.`at`'
    """
    return ".".join(f"`{name.replace('`', '``')}`" for name in column)


def _are_due(column: str, kind: Kind, cutoffs: Sequence[Cutoff | None]) -> list[str]:
    return ["FALSE" if cutoff is None else _is_due(column, kind, cutoff) for cutoff in cutoffs]


def _is_due(column: str, kind: Kind, cutoff: Cutoff) -> str:
    due = f"{column} <= {_instant(cutoff.last, kind)}"
    if cutoff.later is None:
        return due
    first, last = (_instant(tick, kind) for tick in cutoff.later)
    return f"({due} AND NOT {column} BETWEEN {first} AND {last})"


def _merge(table: str, policy: TablePolicy, limit: str) -> str:
    """Remove the rows of a group, or of a key in it, that are older than the oldest one within the limit."""
    columns, groups = policy.columns, group_of(policy, limit)
    keys = columns.key if limit == "max_rows_per_key" else ()
    time = () if columns.time is None else (columns.time,)
    newest_by = (*columns.order, *time) if keys else (*time, *columns.order)
    order = [f"{quoted(column)} DESC NULLS LAST" for column in newest_by]
    count = "count(*)"
    if limit == "max_bytes" and columns.size is not None:
        size = f"greatest(coalesce({quoted(columns.size)}, 0), 0)"
        count, order = f"sum({size})", [*order, size]
    parts = {"group": _groups(policy, groups, ""), **_keys(keys, "")}
    live = {"group": _groups(policy, groups, "`live`."), **_keys(keys, "`live`.")}
    return _MERGE.format(
        table=table,
        parts=_listed(f"`{name}`" for name in parts),
        columns=_listed(
            [
                *(f"{value} AS `{name}`" for name, value in parts.items()),
                f"{_age(newest_by, '')} AS `age`",
            ]
        ),
        count=count,
        partition=_listed(parts.values()),
        order=_listed(order),
        ranked=_all(f"{quoted(column)} IS NOT NULL" for column in (*time, *keys)) or "TRUE",
        beyond=" OR ".join(
            f"`group` = {group} AND `count` > {most}"
            for group, most in group_limits(policy, limit).items()
        ),
        same=_all(
            [
                *(f"{value} = `kept`.`{name}`" for name, value in live.items()),
                *(f"`live`.{quoted(column)} IS NOT NULL" for column in time),
            ]
        ),
        age=_age(newest_by, "`live`."),
    )


def _groups(policy: TablePolicy, groups: Array, of: str) -> str:
    return _by_policy(policy, [str(group) for group in groups], of)


def _keys(keys: Sequence[Column], of: str) -> dict[str, str]:
    return {f"key_{number}": f"{of}{quoted(column)}" for number, column in enumerate(keys)}


def _age(newest_by: Sequence[Column], of: str) -> str:
    """The age of a row as a value that is greater for newer rows; null is the oldest."""
    columns = (f"{of}{quoted(column)}" for column in newest_by)
    return f"struct({_listed(f'{column} IS NOT NULL, {column}' for column in columns)})"


def _listed(expressions: Iterable[str]) -> str:
    return ", ".join(expressions)


def _all(conditions: Iterable[str]) -> str:
    return " AND ".join(conditions)


def _by_policy(policy: TablePolicy, values: Sequence[str], of: str = "") -> str:
    """The value for the policy of a row, as an expression, from that for each policy and for rows without one."""
    if len(set(values)) == 1:
        return values[0]
    cases = " ".join(
        f"WHEN {_all(_is_listed(f'{of}{quoted(column)}', listed) for column, listed in each.where)} THEN {value}"
        for each, value in zip(policy.policies, values, strict=False)
    )
    return f"CASE {cases} ELSE {values[-1]} END"


def _is_listed(column: str, values: Sequence[Scalar]) -> str:
    listed = [_literal(value) for value in values if value is not None]
    conditions = [f"{column} IN ({_listed(listed)})"] if listed else []
    conditions += [f"{column} IS NULL"] if None in values else []
    return conditions[0] if len(conditions) == 1 else f"({' OR '.join(conditions)})"


def _literal(value: Scalar) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP{'' if value.tzinfo else '_NTZ'} '{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return f"{value:f}BD" if isinstance(value, Decimal) else str(value).upper()


def _instant(tick: int, kind: Kind) -> str:
    """A tick as a literal; instants are of UTC."""
    if kind not in ("date", "timestamp", "timestamp_ntz"):
        return str(tick)
    at = _EPOCH + timedelta(microseconds=tick * TICK_NS[kind] // MICROSECOND)
    if kind == "date":
        return _literal(at.date())
    return _literal(at if kind == "timestamp" else at.replace(tzinfo=None))
