"""A user's program with the data source: messages of streams, read by tasks."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import retention


def main() -> None:
    """Print the messages of each stream of a warehouse: their number, and the number on one subject."""
    place, *names = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    retention.register(spark)
    for name in names:
        rows = spark.read.format("retention").option("warehouse", place).load(name)
        print(name, rows.count(), rows.where("subject like '%.a' and payload is not null").count())


if __name__ == "__main__":
    main()
