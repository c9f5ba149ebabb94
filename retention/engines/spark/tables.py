"""Rows of sources as messages, by SQL expressions; faults in these are told before Spark works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from retention.dialects.dialect import Dialect
from retention.engines.spark.columns import given_columns
from retention.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def mapped(
    rows: DataFrame, location: str, names: Sequence[str], columns: Mapping[str, str]
) -> DataFrame:
    """Rows of a source as an append takes them.

    Args:
        rows: with the source's own columns.
        location: where the source lies, for sentences.
        names: columns that the result has if the source has them.
        columns: a column of the result → its SQL expression over the source's columns.

    Raises:
        UsageError: an expression means nothing in the source.
    """
    for name, expression in columns.items():
        _refuse_meaningless(rows, location, name, expression)
    expressions = {name: f"`{name}`" for name in names if name in rows.columns} | dict(columns)
    return rows.selectExpr(
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
            f"--column {name}={expression}: {reason_of(error)}; nothing was read; {location} has the columns "
            f"{', '.join(table.columns)}"
        ) from error


def reason_of(error: AnalysisException) -> str:
    """The first line of what Spark says, without the name of its condition."""
    line = str(error).strip().partition("\n")[0]
    return line.partition("] ")[2].split(" SQLSTATE")[0].rstrip(" .") or line
