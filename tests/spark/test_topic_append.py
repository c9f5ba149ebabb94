"""DataFrames appended to topics: the same result as publishing the messages, for any partitioning of the frame."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.dialects.column_mapping import ColumnMapping
from retention.errors import RefusedError, UsageError
from retention.formats.iggy.user_headers import build, typed_of
from retention.ingest.table_source import TableSource, ingest
from tests.support.topics import START, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "payload binary, partition int, key string, id string, headers binary, origin_ts_ns long"
SMALL = {"segment_size": "1MiB", "max_message_size": 2_000}
Row = dict[str, Any]
_EMPTY: Row = {"id": "", "headers": b""}
"""Nulls come first."""


def some_rows(count: int) -> list[Row]:
    """Messages in random order: by partition, by key, and by neither; some with ids and headers; ties in time."""
    block = build([(typed_of("n"), typed_of(7))])
    return [
        {
            "payload": f"{number * 7919 % count:05}".encode() * (1 + number % 40),
            "partition": number % 3 if number % 5 == 0 else None,
            "key": f"k{number % 7}" if number % 5 in (1, 2) else None,
            "id": str(2**127 + number) if number % 4 == 0 else None,
            "headers": block if number % 6 == 0 else None,
            "origin_ts_ns": START + number * 31 % 17 * 1_000_000,
        }
        for number in range(count)
    ]


def frame_of(spark: SparkSession, rows: list[Row], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame(rows, schema)


def line(row: Row) -> str:
    given = {"data_b64": b64encode(row["payload"]).decode(), "origin_ts_ns": row["origin_ts_ns"]}
    given |= {name: row[name] for name in ("partition", "key", "id") if row[name] is not None}
    if row["headers"] is not None:
        given["headers_b64"] = b64encode(row["headers"]).decode()
    return json.dumps(given)


def published(world: World, rows: list[Row]) -> list[Row]:
    """The stored form of the same messages, published in the order of an append."""

    def order(row: Row) -> tuple[Any, ...]:
        told = [(row[name] is not None, row[name] or empty) for name, empty in _EMPTY.items()]
        return row["origin_ts_ns"], *told, row["payload"]

    ordered = sorted(rows, key=order)
    world.topic.publish([line(row) for row in ordered])
    return world.rows()


@pytest.mark.parametrize("partitions", [1, 5])
def test_a_frame_becomes_what_publishing_it_would(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    rows = some_rows(400)
    appended = World(tmp_path / "a", "delta", SMALL | {"partitions": 3})
    done = appended.topic.append(frame_of(spark, rows).repartition(partitions), "app", 1)
    alike = World(tmp_path / "b", "parquet", SMALL | {"partitions": 3})
    assert appended.rows() == published(alike, rows)
    assert (done.messages, done.bytes) == (400, sum(row["size"] for row in appended.rows()))
    assert appended.open_base() == alike.open_base()
    again = appended.topic.append(frame_of(spark, rows), "app", 1)
    assert again.duplicate
    appended.topic.append(frame_of(spark, rows[:9]))
    published(alike, rows[:9])
    assert appended.rows() == alike.rows()


def test_segments_are_sealed_within_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [{"payload": b"x" * 300_000} for _ in range(9)]
    world = World(tmp_path, "parquet", {"partitions": 1, "max_message_size": 300_304})
    world.topic.append(frame_of(spark, rows, "payload binary"))
    assert [segment for _, segment, _, _ in world.places()] == [0, 0, 0, 0, 4, 4, 4, 4, 8]
    assert world.open_base() == {0: 8}
    assert world.topic.append(frame_of(spark, [], "payload binary")).messages == 0


@pytest.mark.parametrize(
    ("row", "error", "why"),
    [
        ({"payload": b""}, RefusedError, "InvalidMessagePayloadLength"),
        ({"partition": 2}, RefusedError, "PartitionNotFound"),
        ({"partition": 0, "key": "k"}, UsageError, "exclude each other"),
        ({"id": "x"}, UsageError, "an id is a whole number"),
        ({"id": str(2**128)}, UsageError, "an id has 128 bits at most"),
        ({"headers": b"\x02"}, UsageError, "the user headers end within the length"),
        ({"origin_ts_ns": -1}, UsageError, "not before 1970"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused(
    spark: SparkSession, tmp_path: Path, row: Row, error: type[Exception], why: str
) -> None:
    fine: Row = dict.fromkeys(("partition", "key", "id", "headers", "origin_ts_ns")) | {
        "payload": b"x"
    }
    world = World(tmp_path, "parquet")
    with pytest.raises(error, match=why):
        world.topic.append(frame_of(spark, [fine, fine | row]), any_time=True)
    assert world.topic.state().messages == 0


def test_columns_of_another_type_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    with pytest.raises(UsageError, match="the column payload is missing"):
        world.topic.append(frame_of(spark, [{"partition": 1}], "partition int"))
    with pytest.raises(UsageError, match="the column id is a bigint"):
        world.topic.append(frame_of(spark, [{"payload": b"x", "id": 1}], "payload binary, id long"))


def test_rows_of_another_table_come_once(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    source = TableSource(
        str(tmp_path / "source"),
        "parquet",
        ColumnMapping({"key": "concat('k', n)", "payload": "t"}),
    )
    for _ in range(2):
        spark.range(20).selectExpr("id AS n", "CAST(id AS STRING) AS t").write.mode(
            "append"
        ).parquet(source.location)
        assert ingest(world.topic.opened, source, spark).messages == 20
    assert ingest(world.topic.opened, source, spark).messages == 0
    assert len(world.rows()) == 40
    assert len({row["partition"] for row in world.rows()}) == 2
    with pytest.raises(UsageError, match="subject: no such column; there are payload, partition"):
        ingest(
            world.topic.opened,
            TableSource(source.location, "parquet", ColumnMapping({"subject": "t"})),
            spark,
        )


def test_a_streaming_query_appends_each_micro_batch_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path, "delta")
    sink = world.topic.sink("query")
    frame = frame_of(spark, [{"payload": b"a"}, {"payload": b"b"}], "payload binary")
    sink(frame, 0)
    sink(frame, 0)
    sink(frame, 1)
    assert len(world.rows()) == 4
