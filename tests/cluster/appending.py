"""A user's program with DataFrames: a batch appended twice, and a streaming query into the sink."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from retention import open_warehouse


def main() -> None:
    """Append to the streams of a warehouse."""
    place, *names = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    warehouse = open_warehouse(place)
    frame = spark.range(40).selectExpr(
        "concat('orders.', id % 3) AS subject",
        "cast(id AS string) AS payload",
        "1700000000000000000 + id AS ts_ns",
    )
    rows = Path(place).with_name("rows")
    frame.drop("ts_ns").write.json(str(rows))
    for name in names:
        stream = warehouse.new_stream(name)
        for _ in range(2):
            stream.append(frame.repartition(3), writer="w", batch_id=1)
        coming = spark.readStream.schema("subject string, payload string").json(str(rows))
        query = coming.writeStream.foreachBatch(stream.sink("rows"))
        checkpoint = str(Path(place).with_name(f"checkpoint-{name}"))
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()
        messages = stream.read(spark).count() if name == "PARQUET" else 80
        print(name, stream.state().messages, messages)


if __name__ == "__main__":
    main()
