"""Scenarios in a Spark Connect session, in a process without another session: `connect_client FOLDER SCENARIO…`.

The output is JSON: scenario → its error, empty if none. `SPARK_REMOTE` names the server.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality

import retention
from retention.api.warehouse import Warehouse
from retention.apply import stage
from retention.core.labels import labelled
from retention.core.progress import LOGGER
from retention.datafile.rewrite import copy_remaining
from retention.dialects.column_mapping import ColumnMapping
from retention.engines.select import Engines
from retention.engines.spark import append, jobs
from retention.engines.spark.connect import is_connect
from retention.engines.spark.engine import SparkEngine
from retention.engines.spark.session import active_session, session
from retention.errors import DamagedError, UsageError
from retention.ingest.table_source import TableSource, ingest
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.sandboxes import ORDERS, lines, opened
from tests.support.spark_jobs import noted, noting, wait_for, waiting
from tests.support.streaming_queries import WAYS, append_stream
from tests.support.topics import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Scenario = Callable[["SparkSession", Path, pytest.MonkeyPatch], None]
NOW = START + 99 * SECOND
FORMATS = ("delta", "parquet")


def a_pass(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Plans and results equal those of the local engine; jobs have tags, and the history names the application."""
    for format_ in FORMATS:
        here = _laid(folder / "local", format_, "local")
        shutil.copytree(folder / "local" / format_, folder / "spark" / format_)
        there = warehouse_with(folder / "spark" / format_, format_, NOW, "spark", max_msgs=15)
        [local] = here.apply()
        patch.setattr(stage, "rewrite_or_hide", noting(copy_remaining, folder / format_))
        [by_spark] = there.apply()
        patch.undo()
        assert by_spark.value is not None, by_spark.sentence
        assert local.value is not None, local.sentence
        assert local.value.plan_id == by_spark.value.plan_id
        assert held(here).equals(held(there))
        assert held(here).num_rows == 15
        left, right = (warehouse.stream("ORDERS").read(spark) for warehouse in (here, there))
        assert_df_equality(left, right, ignore_row_order=True)
        run = by_spark.value.run
        [(_, _, tags)] = noted(folder / format_)
        assert f"_Tag_{run}," in f"{tags},"
        assert f"_Tag_ORDERS: copy rows that stay (run {run})," in f"{tags},"
        [record] = there.stream("ORDERS").history()
        assert record["spark_application"] == spark.conf.get("spark.app.id")
        assert spark.getTags() == set()


def an_append(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Rows get their sequences by time, once; those of topics their offsets."""
    del patch
    frame = spark.range(40).selectExpr(
        "'a' AS subject", "CAST(id AS STRING) AS payload", f"{START} + (id * 7) % 40 AS ts_ns"
    )
    for format_ in FORMATS:
        stream = warehouse_with(folder / format_, format_, NOW).new_stream("ORDERS")
        for duplicate in (False, True):
            done = stream.append(frame.repartition(3), writer="w", batch_id=1)
            assert done.duplicate is duplicate
        rows = [row for table in stream.messages() for row in table.to_pylist()]
        assert [row["seq"] for row in rows] == list(range(1, 41))
        assert [int(row["payload"]) * 7 % 40 for row in rows] == list(range(40))
        world = World(folder / f"topic-{format_}", format_, {"partitions": 1})
        world.topic.append(frame.select("payload"), "w", 1)
        assert [row["seq"] for row in world.rows()] == list(range(40))


def a_sink(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A streaming query appends exactly once, and one with another checkpoint is refused, as in a classic session."""
    del patch
    frame = spark.range(20).selectExpr(
        "'a' AS subject", "CAST(CAST(id AS STRING) AS BINARY) AS payload"
    )
    for way in WAYS:
        source, warehouse = folder / f"source-{way}", warehouse_with(folder / way, "delta", NOW)
        stream = warehouse.new_stream("ORDERS")
        for rows in (20, 40):
            frame.write.mode("append").parquet(str(source))
            coming = spark.readStream.schema(frame.schema).parquet(str(source))
            for _ in range(2):
                append_stream(way, coming, stream, folder / f"checkpoint-{way}")
                assert held(warehouse).num_rows == rows
        with pytest.raises(Exception, match="another checkpoint's"):
            append_stream(way, coming, stream, folder / f"other checkpoint-{way}")
        assert held(warehouse).num_rows == 40


def a_fold(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Logs of acks are folded as by the local engine."""
    del spark, patch
    stream = opened(folder, ORDERS).stream("ORDERS")
    stream.publish(lines(9))
    stream.consumers.add({"durable_name": "all", "ack_policy": "explicit"})
    said = [
        {"subject": f"$JS.ACK.ORDERS.all.1.{seq}.{seq}.1790000000000000000.0", "data": "+ACK"}
        for seq in range(1, 8)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))
    on_spark = Warehouse(opened(folder, ORDERS).config, lambda: NOW, "spark").stream("ORDERS")
    [log] = on_spark.consumers.fold(str(folder / "log.jsonl"))
    assert log.rows == 7
    [info] = on_spark.consumers.list()
    assert info.ack_floor == {"consumer_seq": 7, "stream_seq": 7}


def a_compaction(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Small files and segments are merged, and no message changes."""
    del spark, patch
    for format_ in FORMATS:
        warehouse = _laid(folder, format_, "spark", compact={"min_files": 2})
        stream = warehouse.stream("ORDERS")
        for _ in range(4):
            stream.publish(['{"subject": "a", "data": "x"}'])
        before = held(warehouse).drop_columns("segment")
        report = stream.compact().apply()
        assert report.merges > 0
        assert held(warehouse).drop_columns("segment").equals(before)


def a_read(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Messages are read as a frame, even if none were ever written."""
    del patch
    for format_ in FORMATS:
        warehouse = _laid(folder, format_, "spark")
        assert warehouse.stream("ORDERS").read(spark).count() == 30
        assert (
            warehouse_with(folder / f"none-{format_}", format_, NOW)
            .stream("ORDERS")
            .read(spark)
            .count()
            == 0
        )


def a_source(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The data source `retention` gives the views of a stream, and results convert to frames."""
    del patch
    warehouse = _laid(folder, "delta", "local")
    stream = warehouse.stream("ORDERS")
    retention.register(spark)
    reader = spark.read.format("retention").options(warehouse=warehouse.location)
    assert reader.load("ORDERS").toArrow().equals(_nullable(held(warehouse)))
    assert (
        stream.plan().to_spark(spark).count()
        == reader.option("view", "plan").load("ORDERS").count()
    )
    with pytest.raises(Exception, match="UsageError: ORDER: there is no such stream in"):
        reader.load("ORDER").count()


def a_cancelled_run(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A run whose tag is interrupted ends in one sentence with the code of interrupted work, and the old state."""
    warehouse = _laid(folder, "delta", "spark")
    before, outcomes, begun = held(warehouse), [], folder / "begun"
    patch.setattr(stage, "rewrite_or_hide", waiting(copy_remaining, begun))
    thread = threading.Thread(target=lambda: outcomes.extend(warehouse.apply()))
    thread.start()
    tags = wait_for(begun)[2].split(",")
    [run] = [tag for tag in tags if "(run " in tag]
    spark.interruptTag(run.partition("(run ")[2].rstrip(")"))
    thread.join()
    [outcome] = outcomes
    assert outcome.exit_code == 130, outcome.sentence
    assert "its Spark jobs were cancelled; " in outcome.sentence
    assert "\n" not in outcome.sentence
    assert held(warehouse).equals(before)
    assert warehouse.stream("ORDERS").history() == []
    patch.undo()
    assert [outcome.exit_code for outcome in warehouse.apply()] == [0]


def a_cancelled_append(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """An interrupted append leaves nothing."""
    begun, errors = folder / "begun", []
    patch.setattr(append, "_write_part", waiting(append._write_part, begun))
    stream = warehouse_with(folder / "w", "delta", NOW).new_stream("ORDERS")

    def appending() -> None:
        try:
            stream.append(spark.sql("SELECT 'a' subject, 'x' payload"))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=appending)
    thread.start()
    wait_for(begun)
    spark.interruptAll()
    thread.join()
    assert [getattr(error, "exit_code", None) for error in errors] == [130], errors
    assert list(stream.messages()) == []


def some_progress(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Long work reports the number of finished tasks."""
    del folder
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    patch.setattr(jobs, "EVERY_S", 0.2)
    with labelled(stream="ORDERS", run="r-1", step="wait"):
        SparkEngine(spark).map(_slow, range(4), [1] * 4)
    logger.removeHandler(handler)
    assert said
    assert all(line.startswith("ORDERS: wait (run r-1): ") for line in said)
    assert all(line.endswith(" tasks") for line in said)


def an_ingest(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Sources are ingested once, including tables with deletion vectors and directories with partition columns."""
    del patch
    stream = warehouse_with(folder / "w", "delta", NOW).new_stream("ORDERS")
    table, lines = folder / "table", folder / "lines"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (n bigint) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.range(9).selectExpr("id AS n").write.format("delta").mode("append").save(str(table))
    spark.sql(f"DELETE FROM delta.`{table}` WHERE n < 2")  # noqa: S608
    (lines / "code=007").mkdir(parents=True)
    (lines / "code=007" / "a b[1].json").write_text('{"n": 1}\n')
    columns = {"subject": "'s.a'", "payload": "CAST(n AS STRING)"}
    for rows in (7, 0):
        assert (
            ingest(
                stream.opened, TableSource(str(table), "delta", ColumnMapping(columns)), spark
            ).messages
            == rows
        )
    columns = {"subject": "concat('s.', code)", "payload": "CAST(n AS STRING)"}
    for rows in (1, 0):
        assert (
            ingest(
                stream.opened, TableSource(str(lines), "json", ColumnMapping(columns)), spark
            ).messages
            == rows
        )
    found = [row for part in stream.messages() for row in part.to_pylist()]
    assert sorted(row["payload"] for row in found) == [
        b"1",
        *(str(n).encode() for n in range(2, 9)),
    ]
    (lines / "code=007" / "bad.json").write_text('{"n": 2}\n{"n": ')
    with pytest.raises(
        DamagedError, match=r"bad.json, line 2 cannot be read as json: not a complete JSON value"
    ):
        ingest(stream.opened, TableSource(str(lines), "json", ColumnMapping(columns)), spark)


def the_session_at_hand(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The active session is used and left running, and small work under `auto` runs locally without it."""
    del folder, patch
    with session() as used:
        assert used is spark
    assert active_session() is spark
    with Engines() as engines:
        assert engines.pick("auto", 1, 10).name == "local"
        assert engines.application() is None
        assert engines.pick("auto", 11, 10).name == "spark"
        assert engines.application() == spark.conf.get("spark.app.id")


def a_stopped_session(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Objects of a stopped session are refused; this is always the last scenario."""
    del patch
    stream = opened(folder, ORDERS).stream("ORDERS")
    frame = spark.createDataFrame([("orders.a", b"")], ["subject", "payload"])
    spark.stop()
    for use in (stream.append, lambda given: stream.sink("query")(given, 0)):
        with pytest.raises(UsageError, match="session was stopped"):
            use(frame)
    with pytest.raises(UsageError, match="session was stopped"):
        stream.read(spark)
    assert not stream.opened.store.exists()


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        a_pass,
        an_append,
        a_sink,
        a_fold,
        a_compaction,
        a_read,
        a_source,
        a_cancelled_run,
        a_cancelled_append,
        some_progress,
        an_ingest,
        the_session_at_hand,
        a_stopped_session,
    )
}


def _laid(folder: Path, format_: str, engine: Any, **more: Any) -> Warehouse:
    """Three segments of ten messages, with a limit of fifteen."""
    limits = more or {"max_msgs": 15}
    warehouse = warehouse_with(folder / format_, format_, NOW, engine, **limits)
    lay(warehouse.stream("ORDERS").opened, even_segments(3, 10))
    return warehouse


def _nullable(rows: pa.Table) -> pa.Table:
    fields = [field.with_nullable(nullable=True) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _slow(_: int) -> None:
    time.sleep(0.6)


def _ended(scenario: Scenario, spark: SparkSession, folder: Path) -> str:
    patch = pytest.MonkeyPatch()
    try:
        scenario(spark, Path(tempfile.mkdtemp(dir=folder)), patch)
    except BaseException:
        return traceback.format_exc()
    finally:
        patch.undo()
    return ""


def main() -> None:
    """Run the scenarios named by arguments."""
    folder, *named = sys.argv[1:]
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    assert is_connect(spark)
    json.dump({name: _ended(SCENARIOS[name], spark, Path(folder)) for name in named}, sys.stdout)


if __name__ == "__main__":
    main()
