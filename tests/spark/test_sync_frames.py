"""Frames of the format `nats` in a copy: sequences kept, the position in the commit, each message once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import retention
from retention.api.stream import Stream
from retention.core.message_rows import complete_rows
from retention.core.seq_ranges import gaps_in
from retention.errors import BusyError, RefusedError, UsageError
from retention.ingest.sync.frame import first_left_out
from retention.ingest.sync.session import SyncOptions
from retention.nats.stream import RemoteStream
from retention.stores.lease import lease
from tests.spark.test_nats_source import BLOCK, FORGOTTEN_AFTER_S, filled
from tests.support.nats_process import Admin, NatsProcess
from tests.support.recorded_stream import RecordedStream, messages
from tests.support.sandboxes import configured
from tests.support.streaming_queries import run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def copy_of(folder: Path, server: NatsProcess, origin: str, **fields: Any) -> Stream:
    sync = {"server": server.url, "stream": origin}
    configured(folder, {"name": "COPY", "sync": sync, "segment_size": "1KiB", **fields})
    return retention.open_warehouse(folder / "retention.yaml").stream("COPY")


def frame_of(spark: SparkSession, server: NatsProcess, name: str, **options: Any) -> DataFrame:
    retention.register(spark)
    reader = spark.read.format("nats").options(server=server.url, partitions=3, **options)
    return reader.load(name)


def query(spark: SparkSession, server: NatsProcess, copy: Stream, name: str, place: Path) -> None:
    retention.register(spark)
    reader = spark.readStream.format("nats").options(server=server.url, maxMessagesPerTrigger=40)
    writer = reader.load(name).writeStream.foreachBatch(copy.sync_sink())
    run_query(writer.option("checkpointLocation", str(place)))


def assert_in_step(copy: Stream, remote: RemoteStream) -> None:
    """The copy holds exactly the messages of the server, byte for byte."""
    tables = remote.read(1, remote.info().last_seq, 1000, 1 << 20)
    there = complete_rows(pa.concat_tables(tables), "file")
    here = pa.concat_tables(copy.messages()).select(there.column_names).cast(there.schema)
    assert here.equals(there)
    assert copy.opened.store.snapshot().counters.next_seq == {0: remote.info().last_seq + 1}


@pytest.mark.spark
def test_frames_and_syncs_take_turns_and_each_message_is_there_once(
    spark: SparkSession, server: NatsProcess, broker: Admin, tmp_path: Path
) -> None:
    remote = filled(broker, "TURNS", 100)
    copy = copy_of(tmp_path, server, "TURNS")
    some = copy.sync_frame(frame_of(spark, server, "TURNS", end=60))
    assert (some.messages, some.commits, some.position, some.behind) == (53, 1, 60, 40)
    assert copy.sync().messages == 40
    assert_in_step(copy, remote)
    assert copy.state().segments > 2
    whole = frame_of(spark, server, "TURNS")
    assert copy.sync_frame(whole).commits == 0
    broker.publish("TURNS.c", [b"", b"late"], BLOCK)
    later = frame_of(spark, server, "TURNS")
    mixed = later.repartition(5, "payload").sort("payload")
    assert copy.sync_frame(mixed).messages == 2
    assert_in_step(copy, remote)
    assert copy.sync().commits == 0, "the position is that of a sync"
    assert copy.sync_frame(later.where("seq < 0")).messages == 0


@pytest.mark.spark
def test_a_query_that_fails_after_its_commit_copies_each_message_once(
    spark: SparkSession, server: NatsProcess, broker: Admin, tmp_path: Path
) -> None:
    remote = filled(broker, "QUERY", 100)
    copy = copy_of(tmp_path, server, "QUERY")
    take, failures = copy.sync_sink(), [1]

    def failing(frame: DataFrame, batch: int) -> None:
        take(frame, batch)
        if batch in failures:
            failures.remove(batch)
            raise RuntimeError("the driver failed after the commit")

    object.__setattr__(copy, "sync_sink", lambda: failing)
    with pytest.raises(PySparkException, match="failed after the commit"):
        query(spark, server, copy, "QUERY", tmp_path / "checkpoint")
    assert copy.state().last_seq == 80
    query(spark, server, copy, "QUERY", tmp_path / "checkpoint")
    assert_in_step(copy, remote)
    assert copy.state().messages == 93


@pytest.mark.spark
def test_frames_that_would_lose_double_or_mix_messages_are_refused(
    spark: SparkSession, server: NatsProcess, broker: Admin, tmp_path: Path
) -> None:
    filled(broker, "RIGHT", 50)
    filled(broker, "WRONG", 60)
    copy = copy_of(tmp_path, server, "RIGHT")
    whole = frame_of(spark, server, "RIGHT")
    refused = [
        (whole.where("seq != 3"), RefusedError, "leaves out message 3 of RIGHT"),
        (whole.where("seq > 40"), RefusedError, "leaves out message 1 of RIGHT"),
        (frame_of(spark, server, "WRONG"), RefusedError, "rows of a stream that was created at"),
        (whole.union(whole.where("seq = 7")), UsageError, "two rows .* sequence 7"),
        (whole.drop("created"), UsageError, "the column created of the frame is missing"),
        (whole.selectExpr("*").withColumn("seq", whole.seq.cast("int")), UsageError, "is int, not"),
        (
            whole.selectExpr("IF(seq = 5, NULL, seq) AS seq", *whole.columns[1:]),
            UsageError,
            "no seq",
        ),
        (whole.selectExpr("seq - 9 AS seq", *whole.columns[1:]), UsageError, "sequence -8, and"),
    ]
    copy.sync_frame(whole.where("seq <= 2"))
    for frame, error, sentence in refused[:2]:
        expected = sentence.replace("message 1", "message 3")
        with pytest.raises(error, match=expected):
            copy.sync_frame(frame)
    fresh = copy_of(tmp_path / "fresh", server, "RIGHT")
    for frame, error, sentence in refused:
        with pytest.raises(error, match=sentence):
            fresh.sync_frame(frame)
    assert not fresh.opened.store.exists() or fresh.state().messages == 0
    with lease(copy.opened.root, "sync", copy.opened.clock), pytest.raises(BusyError):
        copy.sync_frame(whole)
    configured(tmp_path / "plain", {"name": "COPY", "subjects": ["x"]})
    plain = retention.open_warehouse(tmp_path / "plain" / "retention.yaml").stream("COPY")
    with pytest.raises(UsageError, match="it has no sync in its configuration"):
        plain.sync_frame(whole)
    assert copy.state().messages == 2
    as_told = frame_of(spark, server, "RIGHT", start=3)
    assert copy.sync_frame(as_told).position == 50


@pytest.mark.spark
def test_a_stream_made_anew_is_refused_and_what_it_removed_first_is_counted(
    spark: SparkSession, server: NatsProcess, broker: Admin, tmp_path: Path
) -> None:
    filled(broker, "ANEW", 40)
    copy = copy_of(tmp_path, server, "ANEW")
    copy.sync_frame(frame_of(spark, server, "ANEW"))
    broker.publish("ANEW.c", [b"x"] * 10)
    late = frame_of(spark, server, "ANEW").persist()
    assert late.count() == 43
    broker.api("STREAM.PURGE.ANEW", {"seq": 46})
    with pytest.raises(RefusedError, match=r"missed: 41 to 45 \(5\)"):
        copy.sync_frame(frame_of(spark, server, "ANEW"))
    assert copy.sync_frame(late).messages == 10, "the frame had them before they were removed"
    broker.publish("ANEW.c", [b"x"] * 10)
    broker.api("STREAM.PURGE.ANEW", {"seq": 56})
    accepted = copy.sync_frame(frame_of(spark, server, "ANEW"), SyncOptions(max_missed=5))
    assert (accepted.messages, accepted.missed.count) == (5, 5)
    broker.api("STREAM.DELETE.ANEW")
    time.sleep(FORGOTTEN_AFTER_S)
    filled(broker, "ANEW", 90)
    for frame in (late, frame_of(spark, server, "ANEW")):
        with pytest.raises(RefusedError, match="was deleted and made anew"):
            copy.sync_frame(frame)
    late.unpersist()


@pytest.mark.parametrize("most", [100_000, 0])
def test_messages_that_a_frame_leaves_out_are_found(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention.ingest.sync.frame.MOST_KNOWN_GAPS", most)
    remote = RecordedStream.of(messages(1, 300))
    remote.without(*range(1, 5), *range(10, 200, 3), 280)
    there = remote.rows["seq"].to_numpy()
    assert first_left_out(remote, gaps_in(there, 1, 300)) is None
    assert first_left_out(remote, np.empty((0, 2), np.int64)) is None
    assert first_left_out(remote, np.array([[1, 4]])) is None
    for seq in (5, 11, 12, 150, 279, 281, 300):
        gaps = gaps_in(there[there != seq], 1, 300)
        assert first_left_out(remote, gaps) == seq
    assert first_left_out(remote, np.array([[2, 9]])) == 5
