"""The columns of an Arrow schema as Spark DDL."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

SPARK_NAMES = {
    pa.int8(): "tinyint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): "timestamp_ltz",
}
"""Arrow type → Spark's name for it, which has the same meaning in every session."""


def ddl_of(columns: Iterable[pa.Field]) -> str:
    """The declaration of columns, for `DataFrame.mapInArrow` and a reader's `schema`."""
    return ", ".join(f"{column.name} {_spark_name(column.type)}" for column in columns)


def _spark_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return SPARK_NAMES[kind]
