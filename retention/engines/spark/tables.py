"""Tables of other programs as streams of rows, by SQL expressions; faults in them are told before Spark works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from retention.dialects.dialect import Dialect
from retention.engines.spark.columns import given_columns
from retention.engines.spark.s3a import for_spark, reaching
from retention.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_FILES = 1_000
"""Files of a micro-batch, as Delta has it by default: a commit, and what is kept for it, stay bounded."""


def streamed(
    spark: SparkSession,
    location: str,
    table_format: str,
    names: Sequence[str],
    columns: Mapping[str, str],
) -> DataFrame:
    """The rows of a table that only grows, as a stream.

    Args:
        spark: the session.
        location: where the table lies.
        table_format: a format that Spark can read as a stream.
        names: columns that the result has if the table has them.
        columns: a column of the result → its SQL expression over the table's columns.

    Raises:
        UsageError: the table cannot be opened, or an expression means nothing in it.
    """
    place = for_spark(location)
    try:
        with reaching(location):
            table = spark.read.format(table_format).load(place)
    except AnalysisException as error:
        raise UsageError(
            f"{location} cannot be opened as {table_format} ({_reason(error)}); nothing was read; name the directory "
            "of a table and, with --source-format, what it is"
        ) from error
    for name, expression in columns.items():
        _refuse_meaningless(table, location, name, expression)
    stream = spark.readStream.format(table_format).option("maxFilesPerTrigger", MOST_FILES)
    if table_format != "delta":
        # Delta's stream knows its schema, and refuses to be told one.
        stream = stream.schema(table.schema)
    expressions = {name: f"`{name}`" for name in names if name in table.columns} | dict(columns)
    return stream.load(place).selectExpr(
        *(f"{expression} AS `{name}`" for name, expression in expressions.items())
    )


def refuse_unfit(frame: DataFrame, location: str, dialect: Dialect) -> None:
    """Refuse a frame whose columns an append would refuse.

    Raises:
        UsageError: a column is missing or of another type.
    """
    try:
        given_columns(frame, dialect)
    except UsageError as error:
        raise UsageError(
            f"{location}: {error}, for example with --column NAME=SQL; nothing was read"
        ) from error


def _refuse_meaningless(table: DataFrame, location: str, name: str, expression: str) -> None:
    try:
        # Asking for the columns has Spark resolve the expression; nothing runs.
        _ = table.selectExpr(f"{expression} AS `{name}`").columns
    except AnalysisException as error:
        raise UsageError(
            f"--column {name}={expression}: {_reason(error)}; nothing was read; {location} has the columns "
            f"{', '.join(table.columns)}"
        ) from error


def _reason(error: AnalysisException) -> str:
    """The first line of what Spark says, without the name of its condition."""
    line = str(error).strip().partition("\n")[0]
    return line.partition("] ")[2].split(" SQLSTATE")[0].rstrip(" .") or line
