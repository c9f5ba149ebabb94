"""Batches bounded by rows: long rows arrive unchanged, and bytes bound later batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.engines.spark import arrow_batches
from retention.engines.spark.arrow_batches import SHORT_BYTES
from retention.ingest.dataframe import append_frame
from retention.layout import stored_blocks
from tests.support.plain_store import opened_stream, store_of
from tests.support.topics import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NOW = 1_700_000_000_000_000_000


@pytest.fixture
def by_rows(spark: SparkSession) -> Iterator[SparkSession]:
    """The session in its initial state."""
    before = {name: str(spark.conf.get(name)) for name in arrow_batches.BY_ROWS}
    for settings in (arrow_batches.BY_ROWS, before):
        for name, value in settings.items():
            spark.conf.set(name, value)
        if settings is not before:
            yield spark


def some_rows(*payloads: bytes) -> list[dict[str, Any]]:
    return [
        {"subject": "orders.a", "payload": payload, "ts_ns": NOW + number}
        for number, payload in enumerate(payloads)
    ]


@pytest.mark.parametrize(
    ("payloads", "stay_by_rows"),
    [
        ([b"x", b"", b"x" * (SHORT_BYTES - 8)], True),
        ([b"x", b"x" * SHORT_BYTES, b"", b"x" * 300_000], False),
        ([b"x", arrow_batches._LONG], False),
    ],
)
def test_every_message_arrives_as_it_is(
    by_rows: SparkSession, tmp_path: Path, payloads: list[bytes], stay_by_rows: bool
) -> None:
    opened = opened_stream(tmp_path / "stream")
    schema = "subject string, payload binary, ts_ns long"
    done = append_frame(opened, by_rows.createDataFrame(some_rows(*payloads), schema).coalesce(1))
    assert done.messages == len(payloads)
    assert store_of(opened).rows()["payload"].to_pylist() == payloads
    assert arrow_batches.are_by_rows(by_rows) == stay_by_rows


def test_a_long_header_block_arrives_as_it_is(by_rows: SparkSession, tmp_path: Path) -> None:
    block = b"NATS/1.0\r\na: " + b"b" * SHORT_BYTES + b"\r\n\r\n"
    opened = opened_stream(tmp_path / "stream")
    rows = [{"subject": "orders.a", "headers": block, "payload": b"x"}]
    append_frame(
        opened, by_rows.createDataFrame(rows, "subject string, headers binary, payload binary")
    )
    assert store_of(opened).rows()["headers"].to_pylist() == [block]


@pytest.mark.thorough
def test_long_rows_that_spark_sorts_arrive_as_they_are(
    by_rows: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_blocks, "MOST_RANGE_BYTES", 1)
    opened = opened_stream(tmp_path / "stream")
    payloads = [bytes([65 + number]) * number * 500 for number in range(50)]
    schema = "subject string, payload binary, ts_ns long"
    frame = by_rows.createDataFrame(some_rows(*payloads), schema).repartition(3, "ts_ns")
    append_frame(opened, frame)
    assert store_of(opened).rows()["payload"].to_pylist() == payloads


@pytest.mark.thorough
def test_long_messages_of_a_topic_go_where_their_keys_say(
    by_rows: SparkSession, tmp_path: Path
) -> None:
    payloads = [b"x" * size for size in (1, 2 * SHORT_BYTES, 2, 3 * SHORT_BYTES)]
    rows = [{"payload": payload, "key": f"k{n}"} for n, payload in enumerate(payloads)]
    schema = "payload binary, key string"
    appended = World(tmp_path / "a", "delta", {"partitions": 3})
    appended.topic.append(by_rows.createDataFrame(rows, schema))
    assert not arrow_batches.are_by_rows(by_rows)
    alike = World(tmp_path / "b", "delta", {"partitions": 3})
    alike.topic.append(by_rows.createDataFrame(rows, schema))
    assert appended.places() == alike.places()
    assert sorted(payload for *_, payload in appended.places()) == sorted(payloads)
