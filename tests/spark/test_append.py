from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from retention.api.log import Log
from retention.apply.orphans import orphans
from retention.context.context import OpenedStream
from retention.core.message_rows import complete_rows
from retention.datafile.parquet import read_columns
from retention.dialects import numbering
from retention.dialects.dialect import Share
from retention.dialects.jetstream import StreamLayer
from retention.engines.spark import sorted_blocks
from retention.errors import RetentionError, UsageError, VerificationError
from retention.ingest.append import append_rows
from retention.ingest.dataframe import append_frame
from retention.ingest.idempotency import BatchIdentity
from retention.layout import stored_blocks
from tests.support.laying import held, warehouse_with
from tests.support.plain_store import opened_stream, store_of
from tests.support.streaming_queries import WAYS, Way, append_stream
from tests.support.topics import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
NOW = 1_700_000_000_000_000_000
SCHEMA = "subject string, headers binary, payload binary, ts_ns long"


def some_rows(count: int) -> list[dict[str, Any]]:
    """Messages in random order, some with headers, with ties in time and in time and subject."""
    return [
        {
            "subject": f"orders.{number % 3}",
            "headers": b"NATS/1.0\r\na: b\r\n\r\n" if number % 4 == 0 else None,
            "payload": f"{number * 7919 % count}".encode(),
            "ts_ns": NOW + number * 31 % 17 * 1_000_000,
        }
        for number in range(count)
    ]


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame(rows, schema)


def stored(opened: OpenedStream) -> pa.Table:
    return store_of(opened).rows()


def appended_locally(opened: OpenedStream, rows: list[dict[str, Any]]) -> pa.Table:
    ordered = sorted(
        rows,
        key=lambda row: (row["ts_ns"], row["subject"], row["headers"] or b"", row["payload"]),
    )
    columns = {name: [row[name] for row in ordered] for name in rows[0]}
    columns["headers"] = pa.array(columns["headers"], pa.binary())
    append_rows(opened, [complete_rows(pa.table(columns), "file")])
    return stored(opened)


@pytest.mark.parametrize("partitions", [1, 5])
def test_sequences_and_segments_are_those_of_the_rows_in_order(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    rows = some_rows(200)
    ours = opened_stream(tmp_path / "spark", segment_size=700, segment_span="10ms")
    theirs = opened_stream(tmp_path / "local", segment_size=700, segment_span="10ms")
    for part in (rows[:120], rows[120:]):
        frame = frame_of(spark, part).repartition(partitions, "payload")
        done = append_frame(ours, frame)
        expected = appended_locally(theirs, part)
        assert (done.last_seq, done.messages) == (expected.num_rows, len(part))
    assert stored(ours).equals(expected)
    assert store_of(ours).snapshot().counters == store_of(theirs).snapshot().counters
    assert store_of(ours).leftovers() == []


def test_rows_of_which_everything_overlaps_are_sorted_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_blocks, "MOST_RANGE_BYTES", 1)
    ours, theirs = (opened_stream(tmp_path / name, segment_size=700) for name in ("a", "b"))
    append_frame(ours, frame_of(spark, some_rows(200)).repartition(3))
    assert stored(ours).equals(appended_locally(theirs, some_rows(200)))


def test_tasks_divide_by_deadline_as_an_append_in_this_process_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        {
            "subject": "orders.a",
            "headers": f"NATS/1.0\r\nNats-TTL: {10 ** (1 + n % 4)}\r\n\r\n".encode(),
            "payload": f"{n:01000}".encode(),
            "ts_ns": NOW + n,
        }
        for n in range(600)
    ]
    one, some, theirs = (
        opened_stream(tmp_path / name, layout="deadline", allow_msg_ttl=True, segment_size="400KiB")
        for name in ("one", "some", "local")
    )
    append_frame(one, frame_of(spark, rows).coalesce(1))
    append_frame(some, frame_of(spark, rows).repartition(3))
    expected = appended_locally(theirs, rows)
    assert stored(one).equals(expected)
    assert stored(some).equals(expected)
    assert seqs_by_file(one) == seqs_by_file(theirs)
    # Two segments; the second is smaller, so it saves less.
    assert len(seqs_by_file(theirs)) == 6
    assert len(seqs_by_file(some)) > 3
    assert store_of(some).leftovers() == []


def seqs_by_file(opened: OpenedStream) -> list[list[int]]:
    store = store_of(opened)
    files = store.data_files(store.inventory(store.snapshot()).files)
    return sorted(read_columns(file, ["seq"])[0]["seq"].to_pylist() for file in files)


def test_a_batch_of_a_writer_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    frame = frame_of(spark, some_rows(9))
    assert append_frame(opened, frame, BatchIdentity("loader", 1)).messages == 9
    assert append_frame(opened, frame, BatchIdentity("loader", 1)).duplicate
    assert stored(opened).num_rows == 9


def test_an_empty_frame_is_remembered_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    frame = frame_of(spark, [])
    assert append_frame(opened, frame, BatchIdentity("loader", 1)).messages == 0
    assert append_frame(opened, frame_of(spark, some_rows(1)), BatchIdentity("loader", 1)).duplicate


def test_texts_and_times_and_missing_columns_are_understood(
    spark: SparkSession, tmp_path: Path
) -> None:
    opened = opened_stream(tmp_path, NOW)
    frame = spark.sql(
        "SELECT * FROM VALUES ('orders.b', 'x', timestamp '2023-11-14 22:13:20.000001Z'), ('orders.a', 'y', null) "
        "AS rows(subject, payload, time)"
    )
    append_frame(opened, frame)
    append_frame(opened, frame.drop("time"))
    kept = stored(opened)
    assert kept["payload"].to_pylist() == [b"y", b"x", b"y", b"x"]
    assert kept["ts_ns"].to_pylist() == [NOW, NOW + 1_000, NOW, NOW]
    assert kept["headers"].null_count == 4


def test_headers_come_as_block_map_or_pairs(spark: SparkSession, tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    block = b"NATS/1.0\r\na: 1\r\nb: \r\n\r\n"
    forms = (
        "map('b', '', 'a', '1')",
        "array(struct('a' AS k, '1' AS v), struct('b' AS k, '' AS v))",
        f"X'{block.hex()}'",
    )
    for form in forms:
        append_frame(opened, spark.sql(f"SELECT 'orders.a' subject, '' payload, {form} headers"))
    append_frame(
        opened,
        spark.sql(
            "SELECT 'orders.a' subject, '' payload, cast(map() AS map<string, string>) headers"
        ),
    )
    assert stored(opened)["headers"].to_pylist() == [block, block, block, None]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("'orders a' subject, '' payload", "subject is 'orders a'"),
        ("cast(null AS string) subject, '' payload", "subject is None"),
        ("'orders.a' subject, '' payload, map('a:', 'b') headers", "are not a header block"),
        (
            "'orders.a' subject, '' payload, map('a', 'b\\r\\nc: d') headers",
            "are not a header block",
        ),
        ("'orders.a' subject, '' payload, X'00' headers", "are not a header block"),
        ("'orders.a' subject", "column payload is missing"),
        ("1 subject, '' payload", "column subject is a int"),
        ("'orders.a' subject, '' payload, 'now' time", "column time is a string"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused(
    spark: SparkSession, tmp_path: Path, columns: str, reason: str
) -> None:
    opened = opened_stream(tmp_path)
    with pytest.raises(UsageError, match=reason):
        append_frame(opened, spark.sql(f"SELECT {columns}"))
    assert store_of(opened).swaps == []
    assert store_of(opened).leftovers() == []


def test_after_a_lost_race_rows_are_numbered_behind_the_rival(
    spark: SparkSession, tmp_path: Path
) -> None:
    opened = opened_stream(tmp_path)
    rival = replace(opened, root=str(tmp_path / "rival"))

    def come_first() -> None:
        append_frame(rival, frame_of(spark, some_rows(2)))

    store_of(opened).before_commit += [come_first, lambda: None]
    assert append_frame(opened, frame_of(spark, some_rows(5))).first_seq == 3
    assert stored(opened)["seq"].to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    assert store_of(opened).leftovers() == []


def test_a_share_of_more_rows_than_there_are_is_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = opened_stream(tmp_path)
    shares = StreamLayer.shares

    def one_too_many(self: StreamLayer) -> list[Share]:
        *others, last = shares(self)
        return [*others, replace(last, messages=last.messages + 1, bytes=last.bytes + 40)]

    monkeypatch.setattr(StreamLayer, "shares", one_too_many)
    with pytest.raises(VerificationError):
        append_frame(opened, frame_of(spark, some_rows(5)))
    assert store_of(opened).swaps == []


@pytest.mark.parametrize("way", WAYS)
def test_a_streaming_query_appends_each_micro_batch_once(
    spark: SparkSession, tmp_path: Path, way: Way
) -> None:
    from pyspark.errors import StreamingQueryException

    warehouse = warehouse_with(tmp_path, "parquet", NOW)
    log, checkpoint = warehouse.stream("ORDERS"), tmp_path / "checkpoint"

    def run() -> None:
        append_stream(way, arriving(spark, tmp_path / "rows", SCHEMA), log, checkpoint)

    for batch in (range(3), range(3, 5)):
        arrive(tmp_path / "rows", some_rows(5)[batch.start : batch.stop])
        run()
    assert held(warehouse)["seq"].to_pylist() == [1, 2, 3, 4, 5]
    commits = checkpoint / "commits"
    (commits / "1").unlink()
    (commits / ".1.crc").unlink()
    run()
    assert held(warehouse).num_rows == 5
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    counted = {"query": 1, f"retention/query/{query}/query": 1}
    assert log.opened.store.snapshot().counters.batches == counted
    # Another checkpoint counts from 0 again, so its batches are not the committed ones.
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="whose last is batch 1, another checkpoint"):
        run()
    assert held(warehouse).num_rows == 5
    assert orphans(log.opened) == []


@pytest.mark.parametrize("kind", ["stream", "topic"])
def test_both_ways_of_a_streaming_query_store_the_same(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    stored_by = {}
    rows = some_rows(90)
    for each in (rows[:50], [rows[0] | {"subject": "none"}], rows[50:]):
        arrive(tmp_path / "rows", each)
    for way in WAYS:
        coming = arriving(spark, tmp_path / "rows", SCHEMA).where("subject <> 'none'")
        if kind == "stream":
            log: Log = warehouse_with(tmp_path / way, "delta", NOW, segment_size="1KiB").stream(
                "ORDERS"
            )
        else:
            log = World(tmp_path / way, "delta", {"partitions": 3}).topic
            coming = coming.withColumn("n", coming.payload.cast("string").cast("int")).selectExpr(
                "payload",
                "CASE WHEN n % 5 > 0 THEN cast(cast(n % 5 AS string) AS binary) END AS key",
                "cast(n + 1 AS string) AS id",
                "ts_ns AS origin_ts_ns",
            )
        append_stream(way, coming.repartition(3), log, tmp_path / f"checkpoint-{way}")
        stored_by[way] = pa.concat_tables(log.messages())
        assert log.last_batches() == {"query": 2}, "an empty batch is counted"
        assert log.state().messages == 90
    clocks = [] if kind == "stream" else ["ts_ns", "time"]
    first, second = (stored_by[way].drop_columns(clocks) for way in WAYS)
    assert first.equals(second)


def arrive(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Add a file of rows to a folder; its binary columns in base64, as Spark reads them."""
    folder.mkdir(exist_ok=True)
    texts = [
        {
            name: b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    number = len([*folder.iterdir()])
    file = folder / f"{number}.json"
    file.write_text("\n".join(map(json.dumps, texts)))
    # Spark takes files in the order of their times.
    os.utime(file, (number, number))


def arriving(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """A stream of the files of a folder, one in a batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def test_the_session_stays_and_nothing_stays_cached(spark: SparkSession, tmp_path: Path) -> None:
    cached_before = set(spark.sparkContext._jsc.getPersistentRDDs())
    append_frame(opened_stream(tmp_path), frame_of(spark, some_rows(3)))
    assert spark.range(3).count() == 3
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= cached_before


def stages_of(spark: SparkSession) -> dict[int, Any]:
    """The session's stages by number, after all of Spark's events."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jvm: Any = context._jvm
    gateway: Any = context._gateway
    empty = jvm.java.util.ArrayList()
    told = (empty, False, False, gateway.new_array(jvm.double, 0), empty)
    stages = context._jsc.sc().statusStore().stageList(*told)
    return {stages.apply(at).stageId(): stages.apply(at) for at in range(stages.size())}


@pytest.mark.parametrize("kind", ["stream", "topic"])
def test_no_task_sees_all_rows(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    # A few rows would be coalesced into one task, unlike many rows.
    adaptive = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(adaptive, "false")
    monkeypatch.setattr(numbering, "MOST_ROWS", 50)
    monkeypatch.setattr(sorted_blocks, "_FEW_ROWS", 50)
    monkeypatch.setattr(stored_blocks, "RANGE_BYTES", 1 << 20)
    monkeypatch.setattr(stored_blocks, "PART_BYTES", (1 << 20, 2 << 20))
    try:
        before = stages_of(spark).keys()
        frame = frame_of(spark, some_rows(400)).repartition(4)
        frame = frame.withColumn("payload", F.concat("payload", F.lit(b"x" * 16_000)))
        if kind == "stream":
            opened = opened_stream(tmp_path, segment_size=700_000)
            assert append_frame(opened, frame).last_seq == 400
        else:
            limits = {"partitions": 2, "max_message_size": 200_000}
            topic = World(tmp_path, "parquet", limits).topic
            assert topic.append(frame.select("payload")).messages == 400
        after = stages_of(spark)
    finally:
        spark.conf.unset(adaptive)
    new = [after[number] for number in after.keys() - before]
    assert sum(stage.shuffleReadRecords() for stage in new) >= 400, "the counts are Spark's own"
    reading = [stage for stage in new if stage.inputRecords() + stage.shuffleReadRecords()]
    assert min(stage.numTasks() for stage in reading) > 1


def test_errors_of_tasks_keep_their_exit_code(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RetentionError) as caught:
        append_frame(opened_stream(tmp_path), spark.sql("SELECT '' subject, '' payload"))
    assert caught.value.exit_code == 2
