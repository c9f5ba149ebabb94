"""The data source `retention` in a classic session, and results as Spark DataFrames."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

import retention
from retention.api.log import Log
from retention.api.source_views import view_of
from retention.api.spark_source import RetentionSource
from retention.api.stream import Stream
from retention.engines.spark.data_source import FilesPart, TaskShare
from retention.engines.spark.ddl import arrow_of
from retention.errors import UsageError
from retention.schemas.messages import MESSAGES
from tests.support.laying import START, even_segments, lay, warehouse_with
from tests.support.topics import World, line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
PUSHING = "spark.sql.python.filterPushdown.enabled"
NOW = START + 99 * 10**9
FORMATS = ("delta", "parquet")


def table(spark: SparkSession, log: Log, view: str = "messages", **options: Any) -> DataFrame:
    retention.register(spark)
    place = str(Path(log.opened.warehouse) / "retention.yaml")
    reader = spark.read.format("retention").options(config=place, view=view, **options)
    return reader.load() if "stream" in options else reader.load(log.name)


def laid(folder: Path, format_: str, **limits: Any) -> Stream:
    """Three segments of ten messages."""
    stream = warehouse_with(folder, format_, NOW, "local", **limits).stream("ORDERS")
    lay(stream.opened, even_segments(3, 10))
    return stream


def rows_of(log: Log) -> list[dict[str, Any]]:
    return [row for part in log.messages() for row in part.to_pylist()]


def by_view(log: Log, view: str = "messages", **options: Any) -> list[dict[str, Any]]:
    """The rows that tasks read, without Spark: parts travel as pickles."""
    given = {"warehouse": log.opened.warehouse, "stream": log.name, "view": view}
    made = view_of(given | {name: str(value) for name, value in options.items()})
    columns = made.columns()
    parts: list[TaskShare] = pickle.loads(pickle.dumps(made.parts(columns)))  # noqa: S301
    return [row for part in parts for rows in part.tables(columns) for row in rows.to_pylist()]


@pytest.mark.always
def test_a_session_reads_the_messages_of_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    stream = laid(tmp_path, "delta", max_msgs=13)
    frame = table(spark, stream)
    assert frame.columns == MESSAGES.names
    assert frame.toArrow().to_pylist() == rows_of(stream)
    stream.plan().apply()
    narrow = spark.read.format("retention").schema("subject string, seq bigint")
    rows = narrow.options(warehouse=str(tmp_path), stream="ORDERS").load().collect()
    assert [row.seq for row in rows] == [row["seq"] for row in rows_of(stream)]
    assert len(rows) == 13


@pytest.mark.parametrize("format_", FORMATS)
def test_removed_messages_are_in_no_part(tmp_path: Path, format_: str) -> None:
    stream = laid(tmp_path, format_, max_msgs=13)
    assert by_view(stream) == rows_of(stream)
    stream.plan().apply()
    stream.purge(seq=20).apply()
    assert by_view(stream) == rows_of(stream)
    assert len(rows_of(stream)) == 11
    assert sum(file["messages"] for file in by_view(stream, "files")) == 11


def test_each_use_of_a_frame_has_its_own_filter(spark: SparkSession, tmp_path: Path) -> None:
    stream = laid(tmp_path, "delta")
    spark.conf.set(PUSHING, "true")
    try:
        frame = table(spark, stream)
        first, last = frame.where("seq < 5"), frame.where("seq > 25")
        assert first.union(last).count() == 9
    finally:
        spark.conf.unset(PUSHING)


def test_options_select_files_by_their_statistics_and_then_rows(tmp_path: Path) -> None:
    stream = laid(tmp_path, "delta")
    ts_ns = [row["ts_ns"] for row in rows_of(stream)]
    cases: list[tuple[dict[str, str], int, list[int]]] = [
        ({}, 3, list(range(1, 31))),
        ({"from_seq": "29"}, 1, [29, 30]),
        ({"from_seq": "9", "to_seq": "12"}, 2, [9, 10, 11, 12]),
        ({"from": str(ts_ns[8]), "to": str(ts_ns[10])}, 1, [9, 10]),
        ({"subject": "s.0", "to_seq": "9"}, 1, [3, 6, 9]),
        ({"partition": "1"}, 0, []),
    ]
    for options, files, seqs in cases:
        view = view_of({"warehouse": str(tmp_path), "stream": "ORDERS", **options})
        parts = view.parts(MESSAGES)
        assert sum(len(part.files) for part in parts if isinstance(part, FilesPart)) == files
        # A column that only the filter needs is read as well.
        narrow = pa.schema([MESSAGES.field("seq"), MESSAGES.field("partition")])
        tables = [table for part in parts for table in part.tables(narrow)]
        assert [seq for table in tables for seq in table["seq"].to_pylist()] == seqs


def test_a_frame_keeps_its_snapshot_until_the_files_are_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = laid(tmp_path, "parquet", max_msgs=13)
    frame = table(spark, stream)
    # Spark plans a source once for each `load`, at its first use.
    assert len(frame.collect()) == 30
    stream.plan().apply()
    assert frame.count() == 30
    for file in (tmp_path / "streams" / "ORDERS").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(PySparkException, match=r"was deleted from the storage after this read"):
        frame.collect()


@pytest.mark.parametrize("format_", FORMATS)
def test_topics_buckets_and_empty_streams_are_read(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path / "topic", format_)
    world.topic.publish([line(str(n), partition=n % 2) for n in range(6)])
    assert by_view(world.topic) == world.rows()
    assert [row["seq"] for row in by_view(world.topic, partition=1, from_seq=1)] == [1, 2]
    warehouse = warehouse_with(tmp_path / "w", format_, NOW, "local")
    bucket = warehouse.kv("sessions")
    bucket.put("ada", b"1")
    bucket.put("ada", b"2")
    assert by_view(warehouse.stream("KV_sessions")) == rows_of(warehouse.stream("KV_sessions"))
    empty = warehouse.stream("ORDERS")
    for view in ("messages", "plan", "history", "files"):
        assert by_view(empty, view) == []
    [state] = by_view(empty, "state")
    assert (state["messages"], state["first_ts_ns"]) == (0, None)


def test_views_without_rows_have_columns(spark: SparkSession, tmp_path: Path) -> None:
    empty = warehouse_with(tmp_path, "delta", NOW, "local").stream("ORDERS")
    assert empty.plan().to_spark(spark).select("path", "removed_messages").count() == 0
    history = table(spark, empty, "history").select("run", "removed_messages")
    assert history.collect() == []
    assert dict(empty.state().to_spark(spark).dtypes)["first_ts_ns"] == "bigint"


def test_plan_history_and_state_are_those_of_pandas(spark: SparkSession, tmp_path: Path) -> None:
    stream = laid(tmp_path, "delta", max_msgs=13)
    plan = stream.plan()
    frames = {"plan": (table(spark, stream, "plan"), plan.to_spark(spark), plan.to_pandas())}
    same(*frames["plan"])
    assert "drop" in {row.action for row in plan.to_spark(spark).collect()}
    plan.apply()
    same(
        table(spark, stream, "history"),
        stream.history().to_spark(spark),
        stream.history().to_pandas(),
    )
    state = stream.state(NOW)
    same(table(spark, stream, "state", as_of=NOW), state.to_spark(spark), state.to_pandas())
    replay = stream.replay(max_msgs=3)
    fates = [row.fate for row in replay.to_spark(spark).collect()]
    assert fates == replay.to_pandas()["fate"].tolist()


def same(by_source: DataFrame, by_method: DataFrame, pandas: Any) -> None:
    """Both Spark frames have the columns and values of the pandas frame."""
    assert by_source.schema == by_method.schema
    rows = by_method.toArrow()
    assert by_source.toArrow().equals(rows)
    assert set(pandas.columns) <= set(rows.column_names)
    for name in pandas.columns:
        values = [None if value is pandas.isna else value for value in pandas[name]]
        if not any(isinstance(value, list | tuple) for value in values):
            there = [None if value != value else value for value in values if value is not None]  # noqa: PLR0124
            assert [value for value in rows[name].to_pylist() if value is not None] == [
                value for value in there if value is not None
            ]


def said(options: dict[str, str]) -> str:
    with pytest.raises(UsageError) as error:
        view_of(options).columns()
    return str(error.value)


def test_what_a_streaming_query_cannot_do_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = laid(tmp_path, "delta")
    given = {"warehouse": str(tmp_path), "path": "ORDERS", "writer": "query"}

    def refused(*, overwrite: bool = False, columns: Any = (), **options: str) -> str:
        schema = StructType()
        for name, kind in (
            {"subject": StringType(), "payload": BinaryType()} | dict(columns)
        ).items():
            schema = schema.add(name, kind)
        with pytest.raises(UsageError) as error:
            RetentionSource(given | options).streamWriter(schema, overwrite)
        return str(error.value)

    assert refused(where="x") == (
        "the option `where` needs the frame of a batch, which a data source does not get; use "
        "foreachBatch(stream.sink(WRITER, where=…))"
    )
    assert "has no option `view` for the format retention; it has warehouse, " in refused(view="x")
    assert 'add .option("writer", NAME)' in refused(writer="")
    assert "the option `any_time` is true or false, not 'on'" in refused(any_time="On")
    assert "ORDER: there is no such stream" in refused(path="ORDER")
    stored = "stores ts_ns (bigint), subject (string), headers (binary), payload (binary) as they"
    for name, kind in (("payload", StringType()), ("day", DateType()), ("ts_ns", IntegerType())):
        sentence = refused(columns=[(name, kind)])
        assert (
            f"the column {name} is {kind.simpleString()}; the format retention {stored}" in sentence
        )
        assert "use foreachBatch(stream.sink(…))" in sentence
    assert '.outputMode("append")' in refused(overwrite=True)
    monkeypatch.delattr("pyspark.sql.datasource.DataSourceStreamArrowWriter")
    assert "needs Spark 4.1 or later; use foreachBatch(stream.sink(…))" in refused()
    assert stream.opened.store.snapshot().counters.batches == {}


def test_errors_are_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    stream = laid(tmp_path, "delta")
    here = {"warehouse": str(tmp_path), "stream": "ORDERS"}
    assert "there is no such stream in" in said(here | {"stream": "ORDER"})
    assert "did you mean ORDERS?" in said(
        here | {"path": "ORDERS", "stream": "ORDER"} | {"path": ""}
    )
    assert said(here | {"view": "plans"}) == (
        "'plans': there is no such view; the option `view` is messages, plan, history, state, files"
    )
    assert "no warehouse is named: add .option" in said({"stream": "ORDERS"})
    assert "exclude each other" in said(here | {"config": "x.yaml"})
    assert "name one stream: by" in said({"warehouse": str(tmp_path)})
    assert "not both" in said(here | {"path": "OTHER"})
    assert "the view messages has no option `as_of`; it has " in said(here | {"as_of": "0"})
    assert "is a whole number from 0 on, not '-1'" in said(here | {"from_seq": "-1"})
    assert "is not a subject filter" in said(here | {"subject": "a..b"})
    assert "there is no warehouse" in said(here | {"warehouse": str(tmp_path / "none")})
    with pytest.raises(PySparkException, match=re.escape("UsageError: ORDER: there is no such")):
        table(spark, stream, stream="ORDER").count()
    for name, kind, sentence in (
        ("sequence", LongType(), "the view messages has no column sequence; it has partition, "),
        ("seq", StringType(), "the column seq of the view messages is int64, not string; "),
    ):
        columns = arrow_of(StructType().add(name, kind))
        with pytest.raises(UsageError, match=sentence):
            view_of(here).parts(columns)
    with pytest.raises(UsageError, match="the column seq is requested as date, a type that no"):
        arrow_of(StructType().add("seq", DateType()))
