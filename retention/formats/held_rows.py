"""Rows of Python values collected into a table; few are in memory at a time, because Python values take more space."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

import pyarrow as pa

_MOST_ROWS = 1 << 14
_MOST_BYTES = 8 << 20


def table_of_rows(rows: Iterable[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """The rows as an Arrow table, in their order.

    Args:
        rows: a value for each field of the schema; text as bytes.
        schema: the schema of the table; at least two of its fields are text or bytes.
    """
    octets = itemgetter(*(at for at, field in enumerate(schema) if _is_octets(field.type)))
    tables, held, size = [schema.empty_table()], [], 0
    for row in rows:
        held.append(row)
        for value in octets(row):
            if value is not None:
                size += len(value)
        if size >= _MOST_BYTES or len(held) >= _MOST_ROWS:
            tables.append(_table(held, schema))
            held, size = [], 0
    return pa.concat_tables([*tables, _table(held, schema)] if held else tables)


def _is_octets(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_string(kind)


def _table(rows: list[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(columns, schema=schema)
