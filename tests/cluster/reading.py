"""A user's program with the data source: messages of streams are read by tasks, and appended again by a query."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import retention


def main() -> None:
    """Double the messages of each stream of a warehouse; print their number, and the number on one subject."""
    place, *names = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    retention.register(spark)
    for name in names:
        reader = spark.read.format("retention").option("warehouse", place)
        arriving, checkpoint = (str(Path(place).with_name(f"{name}-{of}")) for of in ("in", "seen"))
        stored = reader.load(name).select("subject", "payload")
        stored.write.parquet(arriving)
        writer = spark.readStream.schema(stored.schema).parquet(arriving).writeStream
        writer = writer.format("retention").options(warehouse=place, writer="w")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start(name).awaitTermination()
        rows = reader.load(name)
        print(name, rows.count(), rows.where("subject like '%.a' and payload is not null").count())


if __name__ == "__main__":
    main()
