"""A process with access to an object store only by its environment, and with its own Spark session."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

import retention
from retention.api.stream import Stream
from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply import stage
from retention.apply.orphans import orphans
from retention.datafile.rewrite import RewriteResult, RewriteTask, copy_remaining
from retention.engines.select import EngineName
from retention.engines.spark.s3a import for_spark
from retention.engines.spark.session import build_session
from retention.errors import RetentionError
from retention.plan.planfile import save_plans
from retention.storage import files
from retention.storage.errors import storage_error
from tests.support.laying import SECOND, START, File, Laid, held, lay
from tests.support.nats_process import admin, nats_process
from tests.support.streaming_queries import run_query

NOW = START + 1_000 * SECOND
LATER = 4_000_000_000 * SECOND
"""After everything that a live server stores today."""
PLAN_PARTS = ("", ".files.parquet", ".removed.parquet", ".markers.parquet")
EACH = 40
ENGINES: tuple[EngineName, ...] = ("local", "spark")
FILES = [
    File(
        base=number * EACH + 1,
        messages=[
            Laid(
                seq,
                f"s.{seq * seq % 13}",
                START + (seq - 3 * (seq % 4)) * SECOND,
                b"x" * (seq % 37),
            )
            for seq in range(number * EACH + 1, (number + 1) * EACH + 1)
        ],
    )
    for number in range(4)
]
LIMITS: dict[str, Any] = {"max_msgs": 97, "max_msgs_per_subject": 5}


def warehouse(place: str, engine: EngineName = "spark", **settings: Any) -> Warehouse:
    """The warehouse at a location, with a stopped clock and one stream."""
    stream = {"name": "ORDERS", "subjects": [">"], "no_ack": True, **settings}
    files.replace(f"{place}/retention.yaml", json.dumps({"streams": [stream]}).encode())
    return open_warehouse(place, engine=engine, clock=lambda: NOW)


def laid(place: str, **settings: Any) -> Warehouse:
    """The same warehouse, with four segments."""
    made = warehouse(place, **settings)
    lay(made.stream("ORDERS").opened, FILES)
    return made


def sequences(found: Warehouse) -> list[int]:
    """The sequences of its stream."""
    return sorted(held(found)["seq"].to_pylist())


def refusal(act: Callable[[], object]) -> tuple[int, str]:
    """The exit code and the sentence of a refused act."""
    try:
        act()
    except RetentionError as error:
        return error.exit_code, str(error)
    return 0, ""


def applied(found: Warehouse) -> tuple[int, str]:
    """The exit code and the sentence of a pass."""
    (outcome,) = found.apply()
    return outcome.exit_code, outcome.sentence


def same_plans(place: str, spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """Plans of both engines, their application by Spark, and the result read by Spark."""
    laid(place, **LIMITS)
    saved = {}
    for engine in ENGINES:
        plan = warehouse(place, engine, **LIMITS).stream("ORDERS").plan().plan
        save_plans(f"{place}/{engine}.plan", [plan])
        saved[engine] = [files.read_bytes(f"{place}/{engine}.plan{part}") for part in PLAN_PARTS]
        yield f"{engine} read", plan.header.read.files
    yield "plans are equal", saved["local"] == saved["spark"]
    found = warehouse(place, "spark", **LIMITS)
    yield "applied", applied(found)
    yield "left", sequences(found)
    frame = found.stream("ORDERS").read(spark)
    yield "read by Spark", sorted(row.seq for row in frame.select("seq").collect())


def appends(place: str, spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """A DataFrame appended twice as one batch, and a streaming query into the sink."""
    stream = warehouse(place).stream("ORDERS")
    frame = spark.range(30).selectExpr(
        "concat('s.', id % 3) as subject", "cast(id as string) as payload", f"{START} + id as ts_ns"
    )
    for _ in range(2):
        stream.append(frame.repartition(3), writer="w", batch_id=1)
    yield "appended", sequences(warehouse(place))
    incoming = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = incoming.selectExpr(
        "'s.rate' as subject", "cast(value as string) as payload", f"{START} + value as ts_ns"
    )
    query = (
        rows.writeStream.foreachBatch(stream.sink("rate"))
        .option("checkpointLocation", for_spark(f"{place}/checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    yield "streamed", sequences(warehouse(place))


def attempts(place: str, spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """A task that fails once, after writing its file."""
    del spark
    made, flag = laid(place, max_msgs=97), f"{place}/failed"

    def failing_once(task: RewriteTask) -> RewriteResult:
        done = copy_remaining(task)
        if files.length(flag) is None:
            files.replace(flag, b"once")
            raise storage_error(
                flag, OSError("AWS Error NETWORK_CONNECTION during PutObject operation")
            )
        return done

    with patch.object(stage, "rewrite_or_hide", failing_once):
        yield "applied at the second attempt", applied(made)
    yield "failed once", files.length(flag)
    yield "left by attempts", sequences(made)
    lost = [one for one in orphans(made.stream("ORDERS").opened) if one.what.startswith("data")]
    yield "lost files", len(lost)


def hidden_rows(place: str, spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """A row deleted by Spark with a deletion vector; a pass goes on only without other writers."""
    laid(place)
    table = _table(place)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    spark.sql(f"DELETE FROM {table} WHERE seq = 150")  # noqa: S608
    yield "with a vector", applied(warehouse(place, max_msgs=97))
    yield "with a vector, exclusive", applied(warehouse(place, max_msgs=97, exclusive=True))
    yield "purged", sequences(warehouse(place))


def rivals(place: str, spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """A concurrent delete by Spark, and its write of a version in conflict with ours."""
    stream = laid(place).stream("ORDERS")
    spark.sql(f"DELETE FROM {_table(place)} WHERE segment = 1")  # noqa: S608
    line = '{"subject": "s.0", "data": "late"}'
    yield "publish behind Spark", refusal(lambda: stream.publish([line]))
    yield "pass behind Spark", applied(warehouse(place, max_msgs=97))
    yield "read behind Spark", len(sequences(warehouse(place)))
    sole = warehouse(place, exclusive=True).stream("ORDERS")
    yield "publish, exclusive", refusal(lambda: sole.publish([line]))
    yield (
        "publish behind our own",
        refusal(lambda: warehouse(place).stream("ORDERS").publish([line])),
    )
    yield "survivor", _survivor(f"{place}/entry.json", spark)


def copies(place: str, spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """A live stream, copied twice as a frame, then by a query, into a copy whose passes replay."""
    retention.register(spark)
    with (
        TemporaryDirectory() as folder,
        nats_process(Path(folder)) as server,
        admin(server.url) as user,
    ):
        user.create("LIVE")
        copied = {"name": "COPY", "sync": {"server": server.url, "stream": "LIVE"}}
        limits = {"mode": "replay", "max_msgs": 25, "max_msgs_per_subject": 7}
        copy = _copy(place, "spark", **copied, **limits)
        for number in range(2):
            user.publish(f"LIVE.{number}", [b"x" * number] * 10)
        for _ in range(2):
            copy.sync_frame(spark.read.format("nats").options(server=server.url).load("LIVE"))
        yield "frames", seqs_of(copy)
        user.publish("LIVE.2", [b"x" * 2] * 10)
        live = spark.readStream.format("nats").options(server=server.url, maxMessagesPerTrigger=4)
        query = live.load("LIVE").writeStream.foreachBatch(copy.sync_sink())
        run_query(query.option("checkpointLocation", for_spark(f"{place}/checkpoint")))
        yield "query", seqs_of(copy)
        yield (
            "plans of copies",
            [
                _copy(place, engine, **copied, **limits).plan().plan.removed_messages
                for engine in ENGINES
            ],
        )
        yield "first replay", copy.plan().apply().removed_messages
        yield "replayed", seqs_of(copy)


def _copy(place: str, engine: EngineName, **settings: Any) -> Stream:
    files.replace(f"{place}/retention.yaml", json.dumps({"streams": [settings]}).encode())
    made = open_warehouse(place, engine=engine, clock=lambda: LATER)
    return made.stream("COPY")


def seqs_of(stream: Stream) -> list[int]:
    """The sequences of a stream."""
    return [seq for table in stream.messages() for seq in table["seq"].to_pylist()]


def _survivor(entry: str, spark: SparkSession) -> str:
    """The winner if we write an entry between Spark's check and its write."""
    java: Any = spark
    path = java._jvm.org.apache.hadoop.fs.Path(for_spark(entry))
    system = path.getFileSystem(java._jsc.hadoopConfiguration())
    writing = system.create(path, False)  # noqa: FBT003  (not over what is there)
    files.replace(entry, b"ours")
    writing.write(bytearray(b"Spark's"))
    writing.close()
    return (files.read_bytes(entry) or b"").decode()


def _table(place: str) -> str:
    return f"delta.`{for_spark(place)}/streams/ORDERS/messages`"


def main(place: str) -> None:
    """Print all observations as one JSON object."""
    spark = build_session("s3", java_options="-XX:TieredStopAtLevel=1")
    seen: dict[str, Any] = {}
    for scene in (same_plans, appends, attempts, hidden_rows, rivals, copies):
        seen |= dict(scene(f"{place}/{scene.__name__}", spark))
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
