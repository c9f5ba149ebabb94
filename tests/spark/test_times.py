"""Times of Spark rows on every ingest path: refused by row and column, for any overflow setting of the session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.core.units import parse_instant
from retention.errors import UsageError
from retention.ingest.dataframe import append_frame
from retention.layout import stored_blocks
from tests.support.jobs import run_job
from tests.support.plain_store import opened_stream, store_of
from tests.support.sandboxes import NOW, ORDERS, opened
from tests.support.topics import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SENTINEL = "SELECT 'orders.a' AS subject, 'x' AS payload, timestamp '9999-12-31 00:00:00Z' AS time"
MILLISECONDS = f"SELECT 'orders.a' AS subject, 'x' AS payload, {NOW // 10**6} AS ts_ns"


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_frame_with_times_that_64_bits_do_not_hold_is_refused(
    spark: SparkSession, tmp_path: Path, ansi: str
) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(UsageError) as refused:
            stream.append(spark.sql(SENTINEL), any_time=True)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))
    assert str(refused.value) == (
        "the row with subject 'orders.a': time 9999-12-31T00:00:00Z is outside 1677-09-21 to 2262-04-11, the range "
        "of 64 bits of nanoseconds; nothing was appended; correct or leave out such rows"
    )
    assert stream.state().messages == 0


def test_a_date_is_its_first_instant_in_any_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        stream.append(
            spark.sql("SELECT 'orders.a' AS subject, 'x' AS payload, DATE '2026-11-20' AS time")
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert stream.state().first_ts_ns == parse_instant("2026-11-20T00:00:00Z")
    with pytest.raises(
        UsageError, match=r"payload is missing; an append takes subject and payload"
    ):
        stream.append(spark.sql("SELECT 'orders.a' AS subject, 'x' AS body"))


def test_times_in_another_unit_are_refused_unless_they_are_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    frame = spark.sql(MILLISECONDS)
    said = r"the row with subject 'orders\.a': ts_ns 1800000000000 is .* it is 2027-01-15T08:00:00Z if milliseconds"
    with pytest.raises(UsageError, match=said):
        stream.append(frame)
    with pytest.raises(UsageError, match=said):
        stream.sink("w")(frame, 0)
    assert stream.append(frame, any_time=True).messages == 1
    stream.sink("w", any_time=True)(frame, 0)
    assert stream.state().messages == 2


def test_a_producers_times_of_a_topic_are_held_to_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = World(tmp_path, "parquet").topic
    frame = spark.sql(f"SELECT 'x' AS payload, CAST({NOW // 10**9} AS BIGINT) AS origin_ts_ns")
    with pytest.raises(
        UsageError, match=r"row with payload b'x': origin_ts_ns 1800000000 .* if seconds"
    ):
        topic.append(frame)
    assert topic.append(frame, any_time=True).messages == 1


def test_spark_sorts_by_times_as_tasks_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"timestamp_micros({NOW // 1000} + id * 31 % 17 - 8)"
    frame = spark.range(60).selectExpr(
        "'orders.a' AS subject", "CAST(id AS STRING) AS payload", f"IF(id % 5 = 0, NULL, {at}) AS time"
    )  # fmt: skip
    rows = []
    for most_bytes in (None, 1):
        log = opened_stream(tmp_path / str(most_bytes))
        if most_bytes is not None:
            monkeypatch.setattr(stored_blocks, "MOST_RANGE_BYTES", most_bytes)
        append_frame(log, frame.repartition(3))
        rows.append(store_of(log).rows().select(["payload", "ts_ns"]))
    [merged, by_spark] = rows
    assert merged.equals(by_spark)
    assert merged["ts_ns"].to_pylist() == sorted(merged["ts_ns"].to_pylist())


def test_the_job_refuses_another_unit_and_takes_any_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    del spark
    source = tmp_path / "source"
    source.mkdir()
    rows: list[dict[str, Any]] = [{"subject": "orders.a", "payload": "x", "at": 1_764_028_800_000}]
    (source / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["--warehouse", str(tmp_path / "w"), "--stream", "ORDERS", "--source", str(source)]
    arguments += ["--source-format", "json", "--column", "ts_ns=at"]
    refused = run_job("ingest", tmp_path, *arguments)
    assert refused.returncode == 2
    assert "ts_ns 1764028800000 is 1970-01-01T00:29:24.0288Z, before 1990" in refused.stderr
    taken = run_job("ingest", tmp_path, *arguments, "--any-time")
    assert taken.returncode == 0, taken.stderr
    assert open_warehouse(str(tmp_path / "w")).stream("ORDERS").state().messages == 1
