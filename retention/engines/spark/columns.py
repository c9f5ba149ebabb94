"""A caller's DataFrame of messages, converted to the columns of an append in its dialect."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.core import headers
from retention.core.units import DAY, MICROSECOND
from retention.dialects.arriving_rows import TIME_US, with_columns
from retention.dialects.dialect import ORDER, Dialect
from retention.dialects.iggy import Iggy
from retention.engines.spark.ddl import SPARK_NAMES, ddl_of
from retention.engines.spark.task_code import map_in_arrow
from retention.errors import UsageError
from retention.layout.partitioner import ROUND_ROBIN, partition_addresses

_STREAM_TAKES = "an append takes subject and payload, and if there are headers and ts_ns or time"
_TOPIC_TAKES = "an append to a topic takes payload, and if there are partition or key, id, headers and origin_ts_ns"
_OPTIONAL: dict[str, tuple[type[T.DataType], ...]] = {
    "partition": (T.LongType, T.IntegerType),
    "key": (T.BinaryType, T.StringType),
    "id": (T.StringType,),
    "headers": (T.BinaryType,),
    "origin_ts_ns": (T.LongType,),
}
"""Optional column of a topic's message → its permitted Spark types."""
TOMBSTONE = "is_tombstone"
"""The column, boolean and never null, that marks rows as deletions of their keys."""
_ORDER_TYPES = {
    T.LongType: pa.int64(),
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
}
"""Spark type of an ordering column, other than decimals → Arrow type."""
_NO_BLOCK = "X'00'"
"""The substitute for headers that do not fit a header block; refused when the rows are written."""


def given_columns(frame: DataFrame, dialect: Dialect) -> DataFrame:
    """The columns of `dialect.written` in a frame; absent ones are omitted, because passing nulls costs time in Spark.

    Timestamps become `TIME_US`; columns of the frame with names that begin with `ORDER` are included.

    Raises:
        UsageError: a column is missing or of another type.
    """
    columns = _sent(frame, dialect) if isinstance(dialect, Iggy) else _published(frame)
    return frame.select(
        *[
            columns[name].alias(name)
            for name in (*dialect.written.names, TIME_US)
            if name in columns
        ],
        *[F.col(name) for name in frame.columns if name.startswith(ORDER)],
    )


def order_fields(given: DataFrame) -> list[pa.Field]:
    """The columns of `given_columns` that determine the order of rows, with the types that tasks get."""
    return [
        pa.field(field.name, _order_type(field.dataType))
        for field in given.schema
        if field.name.startswith(ORDER)
    ]


def _order_type(kind: T.DataType) -> pa.DataType:
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ORDER_TYPES[type(kind)]


def arriving(given: DataFrame, dialect: Dialect) -> DataFrame:
    """Given columns and, for a topic, the `address` of each row: its partition, or `ROUND_ROBIN`.

    Args:
        given: the result of `given_columns`.
        dialect: the log's dialect; a row that names an unknown partition is refused when it is written.
    """
    if not isinstance(dialect, Iggy):
        return given
    if not {"partition", "key"} & {*given.columns}:
        return given.withColumn("address", F.lit(ROUND_ROBIN).cast("bigint"))
    columns = [field for field in dialect.written if field.name in ("address", *given.columns)]
    return map_in_arrow(
        given, lambda batches: (addressed(rows, dialect) for rows in batches), ddl_of(columns)
    )


def addressed(rows: pa.RecordBatch, dialect: Dialect) -> pa.RecordBatch:
    """Rows with the columns of `given_columns` and, for a topic, the `address` of each, as in `arriving`."""
    if not isinstance(dialect, Iggy):
        return rows
    batch = with_columns(rows, dialect.written)
    partition, key = (pa.chunked_array([batch[name]]) for name in ("partition", "key"))
    addresses = partition_addresses(partition, key, dialect.policy.partitions)
    is_there = (addresses >= 0) & (addresses < dialect.policy.partitions)
    address = pa.array(np.where(is_there, addresses, ROUND_ROBIN), pa.int64())
    names = [name for name in dialect.written.names if name in rows.schema.names]
    return pa.RecordBatch.from_arrays(
        [address, *(rows[name] for name in names)], names=["address", *names]
    )


def refuse_unstored(schema: T.StructType, dialect: Dialect) -> None:
    """Refuse columns that messages do not contain unchanged.

    Raises:
        UsageError: a column is missing, needs a conversion, or is in no message.
    """
    stored = {
        field.name: SPARK_NAMES[field.type]
        for field in dialect.written
        if field.name in dialect.columns
    }
    given = {field.name: field.dataType.simpleString() for field in schema}
    missing = {name: "missing" for name in ("subject", "payload") if name in stored}
    for name, kind in (missing | given).items():
        if kind != stored.get(name):
            columns = ", ".join(f"{column} ({stored[column]})" for column in stored)
            raise UsageError(
                f"the column {name} is {kind}; the format retention stores {columns} as they are, and no other "
                "column; cast or leave out such columns, or use foreachBatch(stream.sink(…)), which converts them"
            )


def _published(frame: DataFrame) -> dict[str, Column]:
    """The columns of messages for a stream, by name.

    Args:
        frame: `subject` (string) and `payload` (binary or string); if it has them, `headers` (a header block as
            binary, a map of names to values, or an array of pairs) and `ts_ns` (bigint) or `time` (timestamp or date).
    """
    payload = _column(frame, "payload", _STREAM_TAKES, T.BinaryType, T.StringType)
    columns = {
        "subject": _column(frame, "subject", _STREAM_TAKES, T.StringType),
        "payload": payload.cast("binary"),
    }
    if "headers" in frame.columns:
        columns["headers"] = _headers(frame)
    if "ts_ns" in frame.columns:
        given = _column(frame, "ts_ns", _STREAM_TAKES, T.LongType, T.IntegerType)
        columns["ts_ns"] = given.cast("bigint")
    elif "time" in frame.columns:
        # Tasks multiply: on overflow, Spark would wrap or fail without naming the row, depending on the session.
        columns[TIME_US] = _micros(
            frame, _column(frame, "time", _STREAM_TAKES, T.TimestampType, T.DateType)
        )
    return columns | (_deletions(columns) if TOMBSTONE in frame.columns else {})


def _sent(frame: DataFrame, dialect: Iggy) -> dict[str, Column]:
    """The columns of messages for a topic, by name.

    Args:
        frame: `payload` (binary or string); if it has them, `partition` (a whole number) or `key` (binary or string),
            `id` (string, decimal), `headers` (user headers as they are stored, binary), `origin_ts_ns` (bigint).
        dialect: the topic's dialect.
    """
    payload = _column(frame, "payload", _TOPIC_TAKES, T.BinaryType, T.StringType)
    columns = {"payload": payload.cast("binary")}
    for name, kinds in _OPTIONAL.items():
        if name in frame.columns:
            stored_as = SPARK_NAMES[dialect.written.field(name).type]
            columns[name] = _column(frame, name, _TOPIC_TAKES, *kinds).cast(stored_as)
    return columns


def _column(frame: DataFrame, name: str, takes: str, *kinds: type[T.DataType]) -> Column:
    """A column of a frame; `takes` lists the columns of an append, for the error."""
    column_type = _type_of(frame, name)
    if not isinstance(column_type, kinds):
        wanted = " or ".join(kind.typeName() for kind in kinds)
        given = "missing" if column_type is None else f"a {column_type.simpleString()}"
        raise UsageError(f"the column {name} is {given}; {takes}; give {name} as {wanted}")
    return F.col(f"`{name}`")


def _micros(frame: DataFrame, time: Column) -> Column:
    """Microseconds since the epoch of a time; a date is its first instant, UTC, in any session."""
    if isinstance(_type_of(frame, "time"), T.DateType):
        return F.unix_date(time).cast("bigint") * (DAY // MICROSECOND)
    return F.unix_micros(time)


def _headers(frame: DataFrame) -> Column:
    match _type_of(frame, "headers"):
        case T.MapType():
            # The entries of a map are unordered.
            return _block(F.array_sort(F.map_entries("headers")), "key", "value")
        case T.ArrayType(elementType=T.StructType(names=[name, value])):
            return _block(F.col("headers"), name, value)
        case _:
            given = _column(frame, "headers", _STREAM_TAKES, T.BinaryType)
            return F.when(F.octet_length(given) > 0, given)


def _deletions(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Headers and payload of rows with deletions of keys among them; deletions keep their other headers."""
    begin = F.lit(headers.FIRST_LINE)
    deletes = F.lit(f"{headers.KV_OPERATION}: DEL\r\n".encode())
    block = columns.get("headers", F.lit(None).cast("binary"))
    # An invalid header block is passed unchanged, and refused later.
    rest = F.when(
        F.startswith(block, begin),
        F.substring(block, len(headers.FIRST_LINE) + 1, headers.MAX_BLOCK_BYTES),
    )
    marked = F.concat(begin, deletes, F.coalesce(rest, F.lit(b"\r\n")))
    is_deletion, is_block = F.col(TOMBSTONE), block.isNull() | F.startswith(block, begin)
    return {
        "headers": F.when(is_deletion & is_block, marked).otherwise(block),
        "payload": F.when(is_deletion, F.lit(b"")).otherwise(columns["payload"]),
    }


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
