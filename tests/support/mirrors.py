"""delta-spark as the mirror of a broker: it appends rows with sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "int(0) as partition",
    "bigint({segment}) as segment",
    "id as seq",
    "concat('orders.', id % 3) as subject",
    "id * 1000000000 as ts_ns",
    "timestamp_seconds(id) as time",
    "cast(null as binary) as headers",
    "cast(concat('mirror-', id) as binary) as payload",
    "{size} as size",
    "cast(null as bigint) as deadline_ns",
    "false as marker",
    "cast(null as string) as msg_id",
    "cast(null as bigint) as origin_ts_ns",
)


def mirror(
    spark: SparkSession, table: str, seqs: range, segment: int, size: str = "bigint(50)"
) -> None:
    """Append one file of messages, each stored at the second of its sequence."""
    columns = [column.format(segment=segment, size=size) for column in COLUMNS]
    frame = spark.range(seqs.start, seqs.stop).coalesce(1).selectExpr(*columns)
    frame.write.format("delta").mode("append").save(table)
