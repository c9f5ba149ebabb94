"""Column mappings of `append` and `jobs.ingest`: order, deletions, conditions, whole rows, keys."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from retention import register_functions
from retention.core.message_rows import complete_rows
from retention.core.subject_tokens import subject_key, subject_token
from retention.dialects.column_mapping import ColumnMapping
from retention.engines.spark.fixed_settings import settings_of_block
from retention.errors import UsageError
from retention.ingest.append import append_rows
from retention.ingest.dataframe import append_mapped
from retention.layout import stored_blocks
from tests.support.plain_store import opened_stream, store_of
from tests.support.sandboxes import NOW, ORDERS, opened
from tests.support.topics import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
KAFKA = "kafka_offset long, kafka_partition int, key string, value binary, ts_ns long"


def kafka_rows(count: int) -> list[dict[str, Any]]:
    """Messages of three partitions, with unordered and equal times."""
    drawn = random.Random(7)
    return [
        {
            "kafka_offset": 1_000 + number // 3,
            "kafka_partition": number % 3,
            "key": f"user {number % 7}.{number % 3}",
            "value": f"{number:06}".encode() * 9,
            "ts_ns": NOW + (number // 3 + drawn.randrange(-40, 40)) * 1_000_000,
        }
        for number in range(count)
    ]


def kafka(spark: SparkSession, rows: list[dict[str, Any]], **more: str) -> DataFrame:
    columns = {"subject": "concat('orders.', kafka_partition)", "payload": "value"} | more
    frame = spark.createDataFrame(rows, KAFKA)
    return frame.selectExpr("*", *(f"{sql} AS {name}" for name, sql in columns.items()))


@pytest.mark.parametrize("path", ["merged", "sorted by Spark"])
def test_rows_get_their_sequences_in_the_order_of_columns_exactly(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Segments also equal those of serial appends of the same rows, despite unordered times."""
    if path != "merged":
        monkeypatch.setattr(stored_blocks, "MOST_RANGE_BYTES", 1)
    rows = kafka_rows(600)
    limits: dict[str, Any] = {"segment_size": 4_000, "segment_span": "50ms"}
    ours, theirs = (opened_stream(tmp_path / name, **limits) for name in ("spark", "local"))
    order = ("kafka_partition", "kafka_offset")
    frame = kafka(spark, rows).repartition(4, "value")
    done = append_mapped(ours, frame, ColumnMapping(order_by=order))
    assert (done.messages, done.order_by, done.left_out) == (600, order, ("key", "value"))
    ordered = sorted(rows, key=lambda row: [row[name] for name in order])
    columns = {
        "subject": [f"orders.{row['kafka_partition']}" for row in ordered],
        "headers": pa.nulls(len(ordered), pa.binary()),
        "payload": [row["value"] for row in ordered],
        "ts_ns": [row["ts_ns"] for row in ordered],
    }
    append_rows(theirs, [complete_rows(pa.table(columns), "file")])
    assert store_of(ours).rows().equals(store_of(theirs).rows())
    assert store_of(ours).snapshot().counters == store_of(theirs).snapshot().counters


def test_an_offset_decides_the_order_where_nobody_says_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    done = stream.append(kafka(spark, kafka_rows(60)).repartition(3))
    assert done.order_by == ("kafka_offset", "kafka_partition")
    [rows] = stream.messages()
    numbers = [int(payload[:6]) for payload in rows["payload"].to_pylist()]
    assert numbers == list(range(60))
    by_time = stream.append(kafka(spark, kafka_rows(60)).repartition(3), order_by=["ts_ns"])
    assert by_time.order_by == ("ts_ns",)
    times = [time for rows in stream.messages() for time in rows["ts_ns"].to_pylist()][60:]
    assert times == sorted(times)


ORDERED = {
    "string": ["", "a", "a\x00", "b", "ä", "日"],
    "binary": ["", "\x00", "\x7f", "ÿ"],
    "decimal(20,2)": ["-5.50", "0.00", "7.25", "999999999999999999.99"],
    "boolean": ["false", "true"],
    "timestamp": ["0001-01-01 00:00:00Z", "1969-12-31 23:59:59.999999Z", "9999-12-31 00:00:00Z"],
    "timestamp_ntz": ["2025-03-30 02:30:00", "2025-03-30 02:30:00.000001", "2025-03-30 02:31:00"],
    "date": ["0001-01-01", "1970-01-01", "9999-12-31"],
}
"""An orderable type → values in order."""


def test_each_type_that_has_an_order_decides_it(spark: SparkSession, tmp_path: Path) -> None:
    """In one append: rows of a type have a value only in its column, and one row per type has none."""
    rows = [
        (which, given) for which, values in enumerate(ORDERED.values()) for given in (None, *values)
    ]
    numbered = [(*row, number) for number, row in enumerate(rows)]
    frame = spark.createDataFrame(
        random.Random(3).sample(numbered, len(numbered)), "which int, given string, number int"
    ).selectExpr(
        "'orders.a' AS subject",
        "CAST(number AS STRING) AS payload",
        "which",
        *(
            f"CAST(IF(which = {at}, given, NULL) AS {kind}) AS c{at}"
            for at, kind in enumerate(ORDERED)
        ),
    )
    log = opened_stream(tmp_path)
    order = ("which", *(f"c{at}" for at in range(len(ORDERED))))
    append_mapped(log, frame.repartition(3), ColumnMapping(order_by=order))
    stored = [int(payload) for payload in store_of(log).rows()["payload"].to_pylist()]
    assert stored == list(range(len(rows)))


def test_rows_of_a_topic_keep_their_partitions_and_their_order_in_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path, "parquet")
    frame = kafka(spark, kafka_rows(90)).selectExpr(
        "value AS payload", "kafka_partition % 2 AS partition", "kafka_offset"
    )
    done = world.topic.append(frame.repartition(4))
    assert done.order_by == ("kafka_offset", "partition")
    for partition in (0, 1):
        offsets = [
            int(row["payload"][:6]) // 3 for row in world.rows() if row["partition"] == partition
        ]
        assert offsets == sorted(offsets)
    with pytest.raises(UsageError, match="--tombstone: a topic has no keys"):
        world.topic.append(frame, tombstone="payload IS NULL")


def test_rows_without_a_value_delete_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS | {"max_msgs_per_subject": 1}).stream("ORDERS")
    frame = spark.sql(
        "SELECT * FROM VALUES (1, 'a', 'x', NULL), (2, 'a', NULL, map('n', 'v')), (3, 'b', 'y', NULL) "
        "AS rows(offset, key, payload, headers)"
    ).selectExpr("*", "concat('orders.', key) AS subject")
    with pytest.raises(UsageError) as refused:
        stream.append(frame)
    assert str(refused.value) == (
        "the row with subject 'orders.a': payload is null, which is not a message: tombstone=… (--tombstone) makes it "
        "a deletion of its key, where=… (--where) omits it, and coalesce(payload, '') makes it an empty message; "
        "nothing was appended; correct or leave out such rows"
    )
    stream.append(frame, tombstone="payload IS NULL")
    latest = stream.latest().to_pandas().set_index("subject")
    assert latest["operation"].to_dict() == {"orders.a": "delete", "orders.b": "put"}
    assert latest.loc["orders.a"]["headers"] == b"NATS/1.0\r\nKV-Operation: DEL\r\nn: v\r\n\r\n"
    assert latest.loc["orders.a"]["payload"] == b""


def test_a_query_takes_its_rows_as_an_append_does_and_says_once_what_it_leaves_out(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    frame = spark.sql(
        "SELECT * FROM VALUES (3, 'c', 'x'), (1, 'a', NULL), (2, 'b', 'y'), (4, NULL, 'z') AS rows(at, key, payload)"
    ).selectExpr("*", "concat('orders.', key) AS subject", "'?' AS note")
    sink = stream.sink("q", order_by=["at"], where="key IS NOT NULL", tombstone="payload IS NULL")
    for batch in (0, 1):
        sink(frame, batch)
    stored = pa.concat_tables(stream.messages())
    assert stored["subject"].to_pylist() == ["orders.a", "orders.b", "orders.c"] * 2
    assert stored["payload"].to_pylist() == [b"", b"y", b"x"] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "ORDERS: left out of the messages of q: note; payload='all' includes them, or select the columns to keep"
    ]


def test_only_rows_for_which_a_condition_is_true_are_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = opened_stream(tmp_path)
    frame = spark.sql(
        "SELECT 'orders.a' AS subject, CAST(n AS STRING) AS payload, n FROM VALUES 1, 2, 3, NULL AS t(n)"
    )
    done = append_mapped(log, frame, ColumnMapping(where="n > 1"))
    assert (done.messages, done.left_out) == (2, ())
    for said in ("count(1) > 0", "row_number() OVER (ORDER BY n) = 1"):
        with pytest.raises(UsageError, match=r"--where .*nothing was read; the frame has the col"):
            append_mapped(log, frame, ColumnMapping(where=said))
    total = ColumnMapping({"subject": "'orders.a'", "payload": "max(payload)"})
    with pytest.raises(UsageError, match=r"--column payload=max\(payload\): .*nothing was read"):
        append_mapped(log, frame, total)
    for said, why in [
        ("n", "it is int, and no condition"),
        ("m > 1", "`m`"),
        ("n >", "Syntax error"),
    ]:
        with pytest.raises(UsageError, match=f"--where {said}.*{why}.*nothing was read"):
            append_mapped(log, frame, ColumnMapping(where=said))


def test_what_has_no_order_decides_none(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT 'orders.a' AS subject, '' AS payload, 1.5D AS n, named_struct('x', 1) AS s"
    )
    for name, kind in {"n": "double", "s": "struct<x:int>"}.items():
        with pytest.raises(UsageError, match=f"--order-by {name}: the frame has it as {kind}"):
            append_mapped(opened_stream(tmp_path), frame, ColumnMapping(order_by=(name,)))
    inner = ColumnMapping(order_by=("s.x",))
    assert append_mapped(opened_stream(tmp_path), frame, inner).left_out == ("n",)


WHOLE = """
SELECT 'orders.a' AS subject, timestamp '2025-03-30 02:30:00.5Z' AS at, timestamp_ntz '2025-03-30 02:30:00' AS wall,
date '0099-01-02' AS day, CAST(NULL AS STRING) AS nothing, X'00FF' AS octets, 1.50BD AS amount,
map('b', 1, 'a', 2) AS m, array(timestamp '1969-12-31 23:59:59.999999Z') AS times,
named_struct('x', date '2025-01-01', 'y', 'ü"') AS inside
"""
SETTINGS = {
    "spark.sql.session.timeZone": ("Asia/Kathmandu", "America/New_York"),
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.jsonGenerator.ignoreNullFields": ("false", "true"),
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED", "LEGACY"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("turn", [0, 1])
def test_a_whole_row_is_the_same_json_in_every_session(
    spark: SparkSession, tmp_path: Path, turn: int
) -> None:
    with settings_of_block(spark, {name: values[turn] for name, values in SETTINGS.items()}):
        log = opened_stream(tmp_path)
        mapping = ColumnMapping(whole_row=True)
        assert append_mapped(log, spark.sql(WHOLE), mapping).left_out == ()
    [payload] = store_of(log).rows()["payload"].to_pylist()
    assert payload.decode() == (
        '{"subject":"orders.a","at":"2025-03-30T02:30:00.500000Z","wall":"2025-03-30T02:30:00.000000",'
        '"day":"0099-01-02","nothing":null,"octets":"AP8=","amount":1.50,"m":{"a":2,"b":1},'
        '"times":["1969-12-31T23:59:59.999999Z"],"inside":{"x":"2025-01-01","y":"ü\\""}}'
    )


def test_a_type_without_a_form_in_json_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 'orders.a' AS subject, INTERVAL '1' DAY AS span")
    with pytest.raises(UsageError, match="--payload all: the column span holds interval day"):
        append_mapped(opened_stream(tmp_path), frame, ColumnMapping(whole_row=True))


KEYS = ["user:1@example.com", "", "a.b c*>\t\x00", "=", "=3A", "ü日😀", "plain-Key_9/x", "%2E"]


def test_keys_become_tokens_in_spark_as_in_python_and_come_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = opened_stream(tmp_path)
    octets = [b"\x00\xff.", bytes(range(256))]
    rows = [(key.encode(), key) for key in KEYS] + [(key, None) for key in octets]
    frame = spark.createDataFrame(rows, "payload binary, key string")
    mapping = ColumnMapping({"subject": "concat('orders.', Subject_Token(coalesce(key, payload)))"})
    append_mapped(log, frame, mapping)
    stored = store_of(log).rows()
    for subject, payload in zip(
        stored["subject"].to_pylist(), stored["payload"].to_pylist(), strict=True
    ):
        token = subject.removeprefix("orders.")
        assert token == subject_token(payload)
        assert subject_key(token) == payload
    back = spark.createDataFrame(
        [(subject_token(key), key.encode()) for key in KEYS], "t string, k binary"
    )
    again = ColumnMapping({"subject": "'orders.b'", "payload": "subject_key(t)"})
    log = opened_stream(tmp_path / "back")
    done = append_mapped(log, back, again)
    assert done.messages == len(KEYS)
    assert sorted(store_of(log).rows()["payload"].to_pylist()) == sorted(
        key.encode() for key in KEYS
    )
    assert json.dumps(done.left_out) == '["k"]'


def test_a_session_gets_the_functions_for_sql_of_its_own(spark: SparkSession) -> None:
    register_functions(spark)
    said = "subject_token('a b'), subject_token(X'00FF'), subject_token(7), subject_key('=00=FF')"
    [row] = spark.sql(f"SELECT {said}").collect()
    assert tuple(row) == ("a=20b", "=00=FF", "7", b"\x00\xff")
