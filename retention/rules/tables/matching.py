"""The policy of a row: matches of `where` on rows, and on files with one value in a column.

"Policies" in docs/semantics/tables.md has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.table_policy import Column, Scalar, TableLimits, TablePolicy
from retention.errors import ConfigError


def where_columns(policy: TablePolicy) -> tuple[Column, ...]:
    """The columns that policies compare, each once; `where_0` of files and rows is the first."""
    return tuple(dict.fromkeys(column for each in policy.policies for column, _ in each.where))


def limits_of(policy: TablePolicy) -> list[TableLimits]:
    """The limits of the rows of each policy, and as the last those of all other rows."""
    return [*(each.limits for each in policy.policies), policy.limits]


def group_of(policy: TablePolicy, limit: str) -> Array:
    """The group in which rows of each policy count towards a limit: the policy's own number, or that of all others.

    Shape (policies + 1,); the last is that of rows without a policy.
    """
    others = len(policy.policies)
    named = (
        number if limit in each.named else others for number, each in enumerate(policy.policies)
    )
    return np.array([*named, others])


def group_limits(policy: TablePolicy, limit: str) -> dict[int, int]:
    """Group → the number that a limit allows it; groups without the limit are omitted."""
    limits = limits_of(policy)
    allowed = {int(group): getattr(limits[group], limit) for group in group_of(policy, limit)}
    return {group: most for group, most in sorted(allowed.items()) if most is not None}


def policy_of_rows(rows: pa.Table, policy: TablePolicy) -> Array:
    """The number of the first policy that each row matches, else the number of policies; shape (rows,).

    Args:
        rows: columns `where_0`, `where_1`, … as in `where_columns`.
        policy: the policy of the table.

    Raises:
        ConfigError: a value has another type than its column.
    """
    columns = where_columns(policy)
    numbers = np.full(rows.num_rows, len(policy.policies))
    for number, each in reversed(list(enumerate(policy.policies))):
        matches = np.ones(rows.num_rows, dtype=bool)
        for column, values in each.where:
            matches &= _equals(rows[f"where_{columns.index(column)}"], column, values)
        numbers[matches] = number
    return numbers


def possible_policies(files: pa.Table, policy: TablePolicy) -> Array:
    """A mask of the policies that rows of each file may have; shape (files, policies + 1), the last: none.

    Args:
        files: columns `where_0`, … with the value of all rows, and `where_0_is_constant`, …: whether there is one.
        policy: the policy of the table.

    Raises:
        ConfigError: a value has another type than its column.
    """
    columns = where_columns(policy)
    possible = np.zeros((files.num_rows, len(policy.policies) + 1), dtype=bool)
    undecided = np.ones(files.num_rows, dtype=bool)
    for number, each in enumerate(policy.policies):
        surely, maybe = undecided.copy(), undecided.copy()
        for column, values in each.where:
            name = f"where_{columns.index(column)}"
            is_constant = files[f"{name}_is_constant"].to_numpy().astype(bool)
            equal = _equals(files[name], column, values)
            surely &= is_constant & equal
            maybe &= ~is_constant | equal
        possible[:, number] = maybe
        undecided &= ~surely
    possible[:, -1] = undecided
    return possible


def _equals(values: pa.ChunkedArray, column: Column, listed: Sequence[Scalar]) -> Array:
    """A mask of the values that are listed; of null, whether null is."""
    try:
        wanted = pa.array(listed, type=values.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise ConfigError(
            f"where: {'.'.join(column)}: a value of {list(listed)} is not of the column's type, {values.type}; list "
            "values of that type"
        ) from error
    # Without a chunk, as of a table without files, Arrow makes objects of it.
    return pc.is_in(values, value_set=wanted).to_numpy().astype(bool)
