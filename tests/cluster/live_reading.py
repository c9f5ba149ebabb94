"""A user's program with the format `nats`: a live stream is read by ranges, and followed by a streaming query."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import retention


def main() -> None:
    """Print the messages of a stream and their distinct sequences, and those that a query has written to Parquet."""
    server, stream, folder = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    retention.register(spark)
    live = spark.read.format("nats").options(server=server, partitions=4).load(stream)
    print("read", live.count(), live.select("seq").distinct().count())
    reader = spark.readStream.format("nats").options(server=server, maxMessagesPerTrigger=400)
    writer = reader.load(stream).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.start(f"{folder}/rows").awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows")
    print("written", rows.count(), rows.select("seq").distinct().count())


if __name__ == "__main__":
    main()
