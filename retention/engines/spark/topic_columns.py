"""A caller's DataFrame of messages for a topic, brought to the columns that an append reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.engines.spark.columns import column
from retention.layout.partitioner import IN_TURN, addresses

ADDRESSED = ("address", "origin_ts_ns", "id", "headers", "payload")
"""Also the order in which rows get their offsets: rows equal in all of them are interchangeable."""
_GIVEN = ("origin_ts_ns", "id", "headers", "payload", "partition", "key")
_SCHEMA = (
    "address bigint, origin_ts_ns bigint, id string, headers binary, payload binary, "
    "partition bigint, key binary"
)
COLUMNS = (*ADDRESSED, "partition", "key")


def addressed(frame: DataFrame, partitions: int, now_ns: int) -> DataFrame:
    """The columns `COLUMNS` of a frame; `address` is the partition that takes a row, or `IN_TURN`.

    Args:
        frame: `payload` (binary or string); if it has them, `partition` (a whole number) or `key` (binary or string),
            `id` (string, decimal), `headers` (user headers as they are stored, binary), `origin_ts_ns` (bigint).
        partitions: how many the topic has; a row that names another is refused when it is written.
        now_ns: the producer's time of rows without one, nanoseconds since the epoch.

    Raises:
        UsageError: a column is missing or of another type.
    """
    columns = {
        "payload": _column(frame, "payload", T.BinaryType, T.StringType).cast("binary"),
        "partition": _optional(frame, "partition", "bigint", T.LongType, T.IntegerType),
        "key": _optional(frame, "key", "binary", T.BinaryType, T.StringType),
        "id": _optional(frame, "id", "string", T.StringType),
        "headers": _optional(frame, "headers", "binary", T.BinaryType),
        "origin_ts_ns": F.coalesce(
            _optional(frame, "origin_ts_ns", "bigint", T.LongType), F.lit(now_ns).cast("bigint")
        ),
    }
    given = frame.select(*[columns[name].alias(name) for name in _GIVEN])
    return given.mapInArrow(_addresser(partitions), _SCHEMA)


def _addresser(
    partitions: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that says where rows go."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            partition, key = (pa.chunked_array([batch[name]]) for name in ("partition", "key"))
            found = addresses(partition, key, partitions)
            is_there = (found >= 0) & (found < partitions)
            address = pa.array(np.where(is_there, found, IN_TURN), pa.int64())
            yield pa.RecordBatch.from_arrays(
                [address, *(batch[name] for name in _GIVEN)], names=["address", *_GIVEN]
            )

    return run


def _optional(frame: DataFrame, name: str, stored_as: str, *kinds: type[T.DataType]) -> Column:
    if name not in frame.columns:
        return F.lit(None).cast(stored_as)
    return _column(frame, name, *kinds).cast(stored_as)


def _column(frame: DataFrame, name: str, *kinds: type[T.DataType]) -> Column:
    takes = "an append to a topic takes payload, and if there are partition or key, id, headers and origin_ts_ns"
    return column(frame, name, takes, *kinds)
