"""The meaning of a table's settings in words: rows, keys and files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from retention.config.describe_runs import approval_in_words, as_sentences, guards_in_words
from retention.config.table import TableConfig
from retention.config.table_types import format_column
from retention.core.table_policy import Column, RowPolicy, Scalar, TableColumns, TableLimits
from retention.core.units import format_size, spell_duration
from retention.core.wording import counted

_EVIDENCE = {
    "hashed": "keys of removed rows are recorded as hashes",
    "none": "neither keys nor times of removed rows are recorded",
}
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def table_in_words(table: TableConfig) -> str:
    """Describe the effect of one table's settings: its rules first, then its files."""
    return as_sentences([*limits_in_words(table), *_columns(table.policy.columns), *_facts(table)])


def limits_in_words(table: TableConfig) -> tuple[str, ...]:
    """The limits of one table, one clause each for its own and those of each policy."""
    policy = table.policy
    clauses = [_removals(policy.limits, policy.columns)]
    if table.format == "parquet":
        clauses.append(
            "only whole files are removed, so that a row stays as long as another in its file"
        )
    return (*clauses, *(_of_rows(rows, policy.columns) for rows in policy.policies))


def _removals(limits: TableLimits, columns: TableColumns) -> str:
    reasons = list(_reasons(limits, columns))
    return f"a row is removed {', or '.join(reasons)}" if reasons else "no limit removes a row"


def _reasons(limits: TableLimits, columns: TableColumns) -> Iterator[str]:
    if limits.expires and columns.expires_at is not None:
        yield f"at its {format_column(columns.expires_at)}"
    if limits.max_age_ns is not None and columns.time is not None:
        yield f"{spell_duration(limits.max_age_ns)} after its {format_column(columns.time)}"
    if limits.max_rows_per_key is not None:
        key = ", ".join(map(format_column, columns.key))
        yield f"when {_newer(limits.max_rows_per_key)} with its {key}"
    if limits.max_rows is not None:
        yield f"when {_newer(limits.max_rows)}"
    if limits.max_bytes is not None:
        size = format_size(limits.max_bytes)
        if columns.size is None:
            yield f"with its whole file, when newer files have {size}"
        else:
            yield f"when it and newer ones exceed {size} by {format_column(columns.size)}"


def _newer(count: int) -> str:
    return counted(count, "newer one exists", "newer ones exist")


def _of_rows(policy: RowPolicy, columns: TableColumns) -> str:
    return f"{rows_in_words(policy.where)}: {_removals(policy.limits, columns)}"


def rows_in_words(where: Sequence[tuple[Column, Sequence[Scalar]]]) -> str:
    """The rows that a policy matches.

    >>> rows_in_words([(("tenant",), ("acme", None)), (("live",), (True,))])
    'where tenant is acme or null and live is true'
    """
    matches = (f"{format_column(column)} is {_any_of(values)}" for column, values in where)
    return f"where {' and '.join(matches)}"


def _any_of(values: Sequence[Scalar]) -> str:
    return " or ".join(
        json.dumps(value) if value is None or isinstance(value, bool) else str(value)
        for value in values
    )


def _columns(columns: TableColumns) -> Iterator[str]:
    if columns.zone is not None:
        yield f"times without a zone are those of {columns.zone}"
    if columns.unit is not None:
        yield f"times in integers are {_UNITS[columns.unit]} since the epoch"
    if columns.order:
        yield f"the order of rows is that of {', '.join(map(format_column, columns.order))}"


def _facts(table: TableConfig) -> Iterator[str]:
    yield from guards_in_words(table.guards.rule(), "row")
    if table.group is not None:
        yield f"its other settings come from group {table.group}"
    if table.tags:
        yield f"its tags are {', '.join(table.tags)}"
    if table.evidence != "keys":
        yield _EVIDENCE[table.evidence]
    yield f"removed files are kept {spell_duration(table.grace)}"
    if table.approve is not None:
        yield approval_in_words(table.approve, "row")
