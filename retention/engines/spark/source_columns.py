"""Rows of a source mapped to the columns of an append with SQL; faults are reported before Spark runs a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.core.subject_tokens import with_functions_expanded
from retention.dialects.column_mapping import ColumnMapping, default_order, time_candidates
from retention.dialects.dialect import ORDER, Dialect
from retention.engines.spark.columns import TOMBSTONE, given_columns
from retention.engines.spark.row_json import row_json
from retention.errors import UsageError

_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_ORDERED: tuple[tuple[tuple[type[T.DataType], ...], Callable[[Column], Column]], ...] = (
    ((T.ByteType, T.ShortType, T.IntegerType, T.LongType), lambda given: given.cast("bigint")),
    ((T.BooleanType,), lambda given: given.cast("int").cast("bigint")),
    ((T.TimestampType,), F.unix_micros),
    ((T.DateType,), lambda given: F.unix_date(given).cast("bigint")),
    # Strings of such times sort like the times, and need no time zone.
    ((T.TimestampNTZType,), lambda given: given.cast("string")),
    ((T.StringType, T.BinaryType, T.DecimalType), lambda given: given),
)
"""Spark's types of ordering columns → the comparable form of such a column, for both Spark and tasks."""
_WHERE = "nothing was read"


@dataclass(frozen=True)
class MappedRows:
    """Rows for `append_frame`, and the use of the source's columns."""

    frame: DataFrame
    order_by: tuple[str, ...]
    """The source's columns that determine the order of sequences; empty for the order of times."""
    is_chosen: bool
    """Whether the order is not configured but chosen from the source's columns."""
    left_out: tuple[str, ...]
    """The source's columns that no message includes."""

    @property
    def choices(self) -> tuple[str, ...]:
        """A sentence for each choice that was not configured."""
        notes = []
        if self.is_chosen and self.order_by:
            order = ", ".join(self.order_by)
            notes.append(
                f"messages get their sequences in the order of {order}, which the source has; --order-by says otherwise"
            )
        if self.left_out:
            rest = ", ".join(self.left_out)
            notes.append(
                f"left out of the messages: {rest}; --column, or --payload all, takes them in"
            )
        return tuple(notes)


def mapped(rows: DataFrame, mapping: ColumnMapping, dialect: Dialect, source: str) -> MappedRows:
    """Map a source's rows to rows of an append.

    Args:
        rows: rows with the source's own columns.
        mapping: the configured mapping of columns.
        dialect: the log's dialect.
        source: the name of the source, for messages.

    Raises:
        UsageError: an expression is invalid for the source, or a column is missing or has a wrong type.
    """
    mapping.check(dialect)
    if mapping.where is not None:
        rows = _filtered(rows, mapping.where, source)
    order_by = mapping.order_by if mapping.order_by is not None else _default_order(rows)
    columns = {name: F.col(f"`{name}`") for name in dialect.columns if name in rows.columns}
    columns |= {
        name: _expression(rows, f"--column {name}", sql, source)
        for name, sql in mapping.columns.items()
    }
    if mapping.whole_row:
        columns["payload"] = row_json(rows)
    for number, name in enumerate(order_by):
        columns[f"{ORDER}{number}"] = _order(rows, name, source)
    if mapping.tombstone is not None:
        columns[TOMBSTONE] = _condition(rows, "--tombstone", mapping.tombstone, source)
    frame = rows.select(*(column.alias(name) for name, column in columns.items()))
    left_out = mapping.left_out(rows.columns, dialect, order_by)
    return MappedRows(frame, order_by, mapping.order_by is None, tuple(left_out))


def refuse_untimed(rows: DataFrame, mapping: ColumnMapping, source: str) -> None:
    """Refuse a source for a stream without a column for the time of its messages.

    Raises:
        UsageError: there is none; the sentence names candidate columns.
    """
    if {"time", "ts_ns"} & {*mapping.columns, *rows.columns}:
        return
    kinds = {field.name: field.dataType for field in rows.schema}
    times = [name for name, kind in kinds.items() if isinstance(kind, _TIMES)]
    others = (T.NumericType, T.StringType)
    plain = [name for name, kind in kinds.items() if isinstance(kind, others)]
    candidates = ", ".join(time_candidates(times, plain))
    raise UsageError(
        f"{source}: no column is said to be the time of its messages"
        f"{f'; {candidates} may be' if candidates else ', and none looks like one'}; {_WHERE}; give --column time=SQL "
        "(a timestamp) or ts_ns=SQL (nanoseconds since the epoch), or --time now, by which each message is as old as "
        "its ingest"
    )


def _default_order(rows: DataFrame) -> tuple[str, ...]:
    return default_order(field.name for field in rows.schema if _is_whole(field.dataType))


def _is_whole(kind: T.DataType) -> bool:
    return isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and kind.scale == 0)


def _order(rows: DataFrame, name: str, source: str) -> Column:
    given = _expression(rows, "--order-by", _quoted(rows, name), source)
    kind = _type_of(rows, given)
    for kinds, comparable in _ORDERED:
        if isinstance(kind, kinds):
            return comparable(given)
    raise UsageError(
        f"--order-by {name}: {source} has it as {kind.simpleString()}, which has no exact order; {_WHERE}; name "
        "columns of whole numbers, decimals, texts, bytes, dates or times"
    )


def _quoted(rows: DataFrame, name: str) -> str:
    """A column's name in SQL: quoted exactly, or a nested field such as `source.lsn`."""
    return f"`{name}`" if name in rows.columns else name


def _filtered(rows: DataFrame, sql: str, source: str) -> DataFrame:
    condition = _condition(rows, "--where", sql, source)
    with _unresolvable_as_usage(rows, f"--where {sql}", source):
        filtered = rows.where(condition)
        _ = filtered.schema
    return filtered


def _condition(rows: DataFrame, option: str, sql: str, source: str) -> Column:
    """A condition; null counts as false."""
    given = _expression(rows, option, sql, source)
    kind = _type_of(rows, given)
    if not isinstance(kind, T.BooleanType | T.NullType):
        raise UsageError(
            f"{option} {sql}: it is {kind.simpleString()}, and no condition; {_WHERE}; give an SQL condition, such as "
            '"value IS NULL"'
        )
    return F.coalesce(given.cast("boolean"), F.expr("false"))


def _expression(rows: DataFrame, option: str, sql: str, source: str) -> Column:
    """An SQL expression over a source's columns; requesting its type makes Spark resolve it without a job."""
    shown = f"{option}={sql}" if option.startswith("--column") else f"{option} {sql}"
    with _unresolvable_as_usage(rows, shown, source):
        expression = F.expr(with_functions_expanded(sql))
        _ = _type_of(rows, expression)
        return expression


def _type_of(rows: DataFrame, expression: Column) -> T.DataType:
    """The type of an expression beside the columns of a row; this excludes aggregates, which combine all rows."""
    return rows.select("*", expression.alias("it")).schema.fields[-1].dataType


@contextmanager
def _unresolvable_as_usage(rows: DataFrame, shown: str, source: str) -> Iterator[None]:
    """A context around resolving an expression; a failure becomes a one-sentence `UsageError`."""
    try:
        yield
    except AnalysisException as error:
        raise UsageError(
            f"{shown}: {reason_of(error)}; {_WHERE}; {source} has the columns {', '.join(rows.columns)}"
        ) from error


def refuse_unfit(frame: DataFrame, dialect: Dialect, source: str) -> None:
    """Refuse mapped rows with columns that an append would refuse.

    Raises:
        UsageError: a column is missing or of another type.
    """
    try:
        given_columns(frame, dialect)
    except UsageError as error:
        raise UsageError(
            f"{source}: {error}, for example with --column NAME=SQL; {_WHERE}"
        ) from error


def reason_of(error: AnalysisException) -> str:
    """The first line of Spark's message, without the name of its error condition."""
    line = str(error).strip().partition("\n")[0]
    return line.partition("] ")[2].split(" SQLSTATE")[0].rstrip(" .") or line
