"""A key that a person names, `tenant=a,user_id=7`, in the types of the table's columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from retention.config.table_types import format_column
from retention.core.table_policy import Column, TableColumns
from retention.delta.schema import Leaf, arrow_type
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import UsageError
from retention.tables.bounds import leaf_of
from retention.tables.removals import Key

_EXAMPLES = {
    "boolean": "true",
    "date": "2026-05-01",
    "timestamp": "2026-05-01T00:00:00Z",
    "timestamp_ntz": "2026-05-01T00:00:00",
}


def parse_key(text: str, columns: TableColumns) -> dict[str, str]:
    """The values of a key by column, from `tenant=a,user_id=7`; a comma before no column's name belongs to a value.

    Raises:
        UsageError: the text is not of this form.

    >>> parse_key("tenant=a,b,user_id=7", TableColumns(key=(("tenant",), ("user_id",))))
    {'tenant': 'a,b', 'user_id': '7'}
    """
    names = "|".join(map(re.escape, _by_name(columns))) or "(?!)"
    parts = [part.partition("=") for part in re.split(rf",(?=(?:{names})=)", text)]
    if not all(equals for _, equals, _ in parts):
        raise UsageError(
            f"{text!r} is not a key: write COLUMN=VALUE for each of its columns, with commas between them"
        )
    return {name.strip(): value for name, _, value in parts}


def wanted_key(
    table: str, columns: TableColumns, given: Mapping[str, Any]
) -> Callable[[DeltaSnapshot], Key]:
    """A function that gives the values of a key the types of the table's columns.

    Args:
        table: the table's name.
        columns: its columns; all of `key` must be given.
        given: the values, as they are or as texts, by column.

    Raises:
        UsageError: these are not the columns of the key; the function raises it if a value has another type.
    """
    if not columns.key:
        raise UsageError(
            f"{table}: the configuration names no key of this table; write key: COLUMN, or name a row by its file"
        )
    named = _by_name(columns)
    values = {named.get(name): value for name, value in given.items()}
    if set(values) != set(columns.key):
        key = ", ".join(map(format_column, columns.key))
        raise UsageError(
            f"{table}: the key is {key}, and {', '.join(given) or 'nothing'} is given; name exactly the columns of the "
            "key"
        )
    return partial(_typed, table, {column: values[column] for column in columns.key})


def _by_name(columns: TableColumns) -> dict[str, Column]:
    """The columns of a key by each of their names: as the configuration has it, and without backticks."""
    bare = {".".join(column): column for column in columns.key}
    return bare | {format_column(column): column for column in columns.key}


def _typed(table: str, values: Mapping[Column, Any], snapshot: DeltaSnapshot) -> Key:
    return {
        column: scalar_of(table, leaf_of(snapshot, column), values[column]) for column in values
    }


def array_of(table: str, leaf: Leaf, texts: Sequence[str]) -> pa.Array:
    """Texts in the type of a column, all at once.

    Raises:
        UsageError: one is no value of that type.
    """
    kind = arrow_type(leaf.type) or pa.string()
    try:
        return pa.array(texts, pa.string()).cast(kind)
    except (ValueError, ArithmeticError, TypeError, pa.ArrowException):
        # Names the first one that is none.
        return pa.array([scalar_of(table, leaf, text).as_py() for text in texts], kind)


def scalar_of(table: str, leaf: Leaf, value: Any) -> pa.Scalar:
    """A value, as it is or as text, in the type of a column.

    Raises:
        UsageError: it is no value of that type.
    """
    kind = arrow_type(leaf.type) or pa.string()
    try:
        scalar = pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
    except (ValueError, ArithmeticError, TypeError, pa.ArrowException) as error:
        example = _EXAMPLES.get(leaf.type, "7")
        raise UsageError(
            f"{table}: {format_column(leaf.path)} is of the type {leaf.type}, and {value!r} is no value of it; write "
            f"one such as {example}"
        ) from error
    if not scalar.is_valid:
        raise UsageError(
            f"{table}: a row in which {format_column(leaf.path)} is null has no key; name it by its file and position"
        )
    return scalar
