"""A caller's DataFrame of messages brought to the columns that an append reads, with built-in functions only."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.errors import UsageError

ARRIVING = ("ts_ns", "subject", "headers", "payload")
"""Also the order in which rows get their sequences: rows equal in all four are interchangeable."""

_NO_BLOCK = "X'00'"
"""Stands for headers that no block can hold; refused when the rows are written."""


def arriving(frame: DataFrame, now_ns: int) -> DataFrame:
    """The columns `ARRIVING` of a frame.

    Args:
        frame: `subject` (string) and `payload` (binary or string); if it has them, `headers` (a header block as
            binary, a map of names to values, or an array of pairs) and `ts_ns` (bigint) or `time` (timestamp).
        now_ns: the time of rows without one, nanoseconds since the epoch.

    Raises:
        UsageError: a column is missing or of another type.
    """
    columns = {
        "ts_ns": _ts_ns(frame, now_ns),
        "subject": _column(frame, "subject", T.StringType),
        "headers": _headers(frame),
        "payload": _column(frame, "payload", T.BinaryType, T.StringType).cast("binary"),
    }
    return frame.select(*[columns[name].alias(name) for name in ARRIVING])


def _column(frame: DataFrame, name: str, *kinds: type[T.DataType]) -> Column:
    takes = "an append takes subject and payload, and if there are headers and ts_ns or time"
    return column(frame, name, takes, *kinds)


def column(frame: DataFrame, name: str, takes: str, *kinds: type[T.DataType]) -> Column:
    """A column of a frame.

    Args:
        frame: the caller's.
        name: the column's.
        takes: what an append takes, for the error.
        kinds: of which types it may be.

    Raises:
        UsageError: it is missing or of another type.
    """
    found = _type_of(frame, name)
    if not isinstance(found, kinds):
        wanted = " or ".join(kind.typeName() for kind in kinds)
        given = "missing" if found is None else f"a {found.simpleString()}"
        raise UsageError(f"the column {name} is {given}; {takes}; give {name} as {wanted}")
    return F.col(f"`{name}`")


def _ts_ns(frame: DataFrame, now_ns: int) -> Column:
    now = F.lit(now_ns).cast("bigint")
    if _type_of(frame, "ts_ns") is not None:
        given = _column(frame, "ts_ns", T.LongType, T.IntegerType)
    elif _type_of(frame, "time") is not None:
        given = F.unix_micros(_column(frame, "time", T.TimestampType)) * F.lit(1_000).cast("bigint")
    else:
        return now
    return F.coalesce(given.cast("bigint"), now)


def _headers(frame: DataFrame) -> Column:
    found = _type_of(frame, "headers")
    if found is None:
        return F.lit(None).cast("binary")
    match found:
        case T.MapType():
            # The entries of a map have no order of their own.
            return _block(F.array_sort(F.map_entries("headers")), "key", "value")
        case T.ArrayType(elementType=T.StructType(names=[name, value])):
            return _block(F.col("headers"), name, value)
        case _:
            given = _column(frame, "headers", T.BinaryType)
            return F.when(F.octet_length(given) > 0, given)


def _block(pairs: Column, name: str, value: str) -> Column:
    def line(pair: Column) -> Column:
        return F.concat(pair[name], F.lit(": "), pair[value], F.lit("\r\n"))

    def is_broken(pair: Column) -> Column:
        good = pair[name].rlike(r"\A[^:\r\n]+\z") & pair[value].rlike(r"\A[^\r\n]*\z")
        return F.coalesce(~good, F.expr("true"))

    lines = F.array_join(F.transform(pairs, line), "")
    block = F.concat(F.lit("NATS/1.0\r\n"), lines, F.lit("\r\n")).cast("binary")
    return F.when(
        F.size(pairs) > 0, F.when(F.exists(pairs, is_broken), F.expr(_NO_BLOCK)).otherwise(block)
    )


def _type_of(frame: DataFrame, name: str) -> T.DataType | None:
    return frame.schema[name].dataType if name in frame.columns else None
