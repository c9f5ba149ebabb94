"""The columns of an Arrow schema as Spark DDL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from retention.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SPARK_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): "timestamp_ltz",
}
"""Arrow type → Spark's name for it, which has the same meaning in every session."""


def ddl_of(columns: Iterable[pa.Field]) -> str:
    """The declaration of columns, for `DataFrame.mapInArrow` and a reader's `schema`."""
    return ", ".join(f"{_quoted(column.name)} {_spark_name(column.type)}" for column in columns)


def arrow_of(schema: StructType) -> pa.Schema:
    """The Arrow columns of a Spark schema, all nullable.

    Raises:
        UsageError: a column has a type that no table here has.
    """
    return pa.schema(
        [(field.name, _arrow_type(field.name, field.dataType.simpleString())) for field in schema]
    )


def _arrow_type(name: str, kind: str) -> pa.DataType:
    for arrow, spark in SPARK_NAMES.items():
        if kind == spark.removesuffix("_ltz"):
            return arrow
    raise UsageError(f"the column {name} is requested as {kind}, a type that no column here has")


def _quoted(name: str) -> str:
    """A column's name, in backticks if it is not a plain word.

    >>> _quoted("seq"), _quoted("by_rule.max_age")
    ('seq', '`by_rule.max_age`')
    """
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def _spark_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return SPARK_NAMES[kind]
