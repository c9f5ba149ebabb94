"""A caller's DataFrame of messages brought to the columns that an append reads, as its dialect has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.dialects.dialect import Dialect
from retention.dialects.iggy import Iggy
from retention.errors import UsageError
from retention.layout.partitioner import ROUND_ROBIN, partition_addresses

_STREAM_TAKES = "an append takes subject and payload, and if there are headers and ts_ns or time"
_TOPIC_TAKES = "an append to a topic takes payload, and if there are partition or key, id, headers and origin_ts_ns"
_SENT = ("origin_ts_ns", "id", "headers", "payload", "partition", "key")
_ADDRESSED = (
    "address bigint, origin_ts_ns bigint, id string, headers binary, payload binary, "
    "partition bigint, key binary"
)
_NO_BLOCK = "X'00'"
"""Stands for headers that no block can hold; refused when the rows are written."""


def arriving(frame: DataFrame, dialect: Dialect) -> DataFrame:
    """The columns `dialect.written` of a frame; `dialect.timed_by` is null in rows that have no time.

    Raises:
        UsageError: a column is missing or of another type.
    """
    if isinstance(dialect, Iggy):
        return _sent(frame, dialect.policy.partitions)
    return _published(frame).select(*dialect.written)


def _published(frame: DataFrame) -> DataFrame:
    """The columns of messages for a stream.

    Args:
        frame: `subject` (string) and `payload` (binary or string); if it has them, `headers` (a header block as
            binary, a map of names to values, or an array of pairs) and `ts_ns` (bigint) or `time` (timestamp).
    """
    columns = {
        "ts_ns": _ts_ns(frame),
        "subject": _column(frame, "subject", _STREAM_TAKES, T.StringType),
        "headers": _headers(frame),
        "payload": _column(frame, "payload", _STREAM_TAKES, T.BinaryType, T.StringType).cast(
            "binary"
        ),
    }
    return frame.select(*[column.alias(name) for name, column in columns.items()])


def _sent(frame: DataFrame, partitions: int) -> DataFrame:
    """The columns of messages for a topic; `address` is the partition that takes a row, or `ROUND_ROBIN`.

    Args:
        frame: `payload` (binary or string); if it has them, `partition` (a whole number) or `key` (binary or string),
            `id` (string, decimal), `headers` (user headers as they are stored, binary), `origin_ts_ns` (bigint).
        partitions: how many the topic has; a row that names another is refused when it is written.
    """
    columns = {
        "payload": _column(frame, "payload", _TOPIC_TAKES, T.BinaryType, T.StringType).cast(
            "binary"
        ),
        "partition": _optional(frame, "partition", "bigint", T.LongType, T.IntegerType),
        "key": _optional(frame, "key", "binary", T.BinaryType, T.StringType),
        "id": _optional(frame, "id", "string", T.StringType),
        "headers": _optional(frame, "headers", "binary", T.BinaryType),
        "origin_ts_ns": _optional(frame, "origin_ts_ns", "bigint", T.LongType),
    }
    given = frame.select(*[columns[name].alias(name) for name in _SENT])
    return given.mapInArrow(_addresser(partitions), _ADDRESSED)


def _addresser(
    partitions: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that adds to rows their `address`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            partition, key = (pa.chunked_array([batch[name]]) for name in ("partition", "key"))
            addresses = partition_addresses(partition, key, partitions)
            is_there = (addresses >= 0) & (addresses < partitions)
            address = pa.array(np.where(is_there, addresses, ROUND_ROBIN), pa.int64())
            yield pa.RecordBatch.from_arrays(
                [address, *(batch[name] for name in _SENT)], names=["address", *_SENT]
            )

    return run


def _optional(frame: DataFrame, name: str, stored_as: str, *kinds: type[T.DataType]) -> Column:
    if name not in frame.columns:
        return F.lit(None).cast(stored_as)
    return _column(frame, name, _TOPIC_TAKES, *kinds).cast(stored_as)


def _column(frame: DataFrame, name: str, takes: str, *kinds: type[T.DataType]) -> Column:
    """A column of a frame; `takes` says for the error what an append takes."""
    column_type = _type_of(frame, name)
    if not isinstance(column_type, kinds):
        wanted = " or ".join(kind.typeName() for kind in kinds)
        given = "missing" if column_type is None else f"a {column_type.simpleString()}"
        raise UsageError(f"the column {name} is {given}; {takes}; give {name} as {wanted}")
    return F.col(f"`{name}`")


def _ts_ns(frame: DataFrame) -> Column:
    if _type_of(frame, "ts_ns") is not None:
        given = _column(frame, "ts_ns", _STREAM_TAKES, T.LongType, T.IntegerType)
    elif _type_of(frame, "time") is not None:
        time = _column(frame, "time", _STREAM_TAKES, T.TimestampType)
        given = F.unix_micros(time) * F.lit(1_000).cast("bigint")
    else:
        given = F.lit(None)
    return given.cast("bigint")


def _headers(frame: DataFrame) -> Column:
    column_type = _type_of(frame, "headers")
    if column_type is None:
        return F.lit(None).cast("binary")
    match column_type:
        case T.MapType():
            # The entries of a map have no order of their own.
            return _block(F.array_sort(F.map_entries("headers")), "key", "value")
        case T.ArrayType(elementType=T.StructType(names=[name, value])):
            return _block(F.col("headers"), name, value)
        case _:
            given = _column(frame, "headers", _STREAM_TAKES, T.BinaryType)
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
