"""A user's program with the format `nats`: a live stream is read by ranges, followed by a query, and copied."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import retention
from tests.support.streaming_queries import run_query


def main() -> None:
    """Print the messages of a stream and their distinct sequences, as read, as written to Parquet, and as copied."""
    server, stream, folder = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    retention.register(spark)
    live = spark.read.format("nats").options(server=server, partitions=4).load(stream)
    print("read", live.count(), live.select("seq").distinct().count())
    reader = spark.readStream.format("nats").options(server=server, maxMessagesPerTrigger=400)
    writer = reader.load(stream).writeStream.format("parquet")
    run_query(writer.option("checkpointLocation", f"{folder}/checkpoint"), f"{folder}/rows")
    rows = spark.read.parquet(f"{folder}/rows")
    print("written", rows.count(), rows.select("seq").distinct().count())
    copy = retention.open_warehouse(f"{folder}/retention.yaml").stream("COPY")
    for _ in range(2):
        copy.sync_frame(live.repartition(3))
    query = reader.load(stream).writeStream.foreachBatch(copy.sync_sink())
    run_query(query.option("checkpointLocation", f"{folder}/copying"))
    seqs = [seq for table in copy.messages() for seq in table["seq"].to_pylist()]
    print("copied", len(seqs), len(set(seqs)))


if __name__ == "__main__":
    main()
