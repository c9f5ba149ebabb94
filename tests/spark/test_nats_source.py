"""The data source `nats`: a stream of a live server read by ranges, and by streaming queries that miss nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import retention
from retention.api.nats_source import NatsStream, contiguous, reading_of
from retention.engines.spark.live_offsets import (
    LiveState,
    Offset,
    Reach,
    Span,
    first_offset,
    latest_offset,
    refuse_changed,
    span_of,
)
from retention.errors import RefusedError, UsageError
from retention.nats.stream import RemoteStream
from tests.support.nats_process import Admin, NatsProcess
from tests.support.streaming_queries import run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORGOTTEN_AFTER_S = 2.2
"""A server that deletes a stream forgets it by then."""
LARGE = 900_000
"""Bytes of a payload; 16 MiB are on their way to a reader."""
BLOCK = b"NATS/1.0\r\nA: \xff b\r\n\r\n"
NOW = LiveState("stream S at host:1", "T1", 11, 50)
STRICT = Reach(1, fails_on_loss=True)
LENIENT = Reach(1, fails_on_loss=False)


def filled(broker: Admin, name: str, count: int, **config: Any) -> RemoteStream:
    """A stream of `count` messages without a third of those below 30."""
    broker.create(name, **config)
    broker.publish(f"{name}.a", [b"%d" % number for number in range(count - 2)])
    broker.publish(f"{name}.b", [b"", bytes(range(256))], BLOCK)
    for seq in range(9, 30, 3):
        broker.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})
    return RemoteStream(broker.connection, name)


def plainly(remote: RemoteStream, first: int = 1) -> list[dict[str, Any]]:
    info = remote.info()
    tables = remote.read(first, info.last_seq, 1000, 1 << 20)
    return [row | {"created": info.created} for table in tables for row in table.to_pylist()]


def batch(spark: SparkSession, server: NatsProcess, stream: str, **options: Any) -> DataFrame:
    retention.register(spark)
    return spark.read.format("nats").options(server=server.url, **options).load(stream)


class Query:
    """A streaming query that is started again and again, and the last rows of each of its batches."""

    def __init__(self, spark: SparkSession, url: str, stream: str, folder: Path) -> None:
        retention.register(spark)
        self._spark, self._options, self._folder = spark, {"server": url, "stream": stream}, folder
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.fails_at: int | None = None

    def run(self, **options: Any) -> None:
        reader = self._spark.readStream.format("nats").options(**self._options, **options)
        writer = reader.load().writeStream.foreachBatch(self._take)
        run_query(writer.option("checkpointLocation", str(self._folder / "checkpoint")))

    def _take(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.toArrow().to_pylist()
        if self.fails_at == number:
            self.fails_at = None
            raise RuntimeError("the sink failed")

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows = [row for batch in self.batches.values() for row in batch]
        return sorted(rows, key=lambda row: int(row["seq"]))


@pytest.mark.spark
def test_ranges_equal_the_plain_reader(
    spark: SparkSession, server: NatsProcess, broker: Admin
) -> None:
    remote = filled(broker, "RANGES", 100)
    whole = batch(spark, server, "RANGES", partitions=3)
    assert whole.columns == ["seq", "subject", "ts_ns", "headers", "payload", "created"]
    assert whole.rdd.getNumPartitions() == 3
    assert whole.sort("seq").toArrow().to_pylist() == plainly(remote)
    some = batch(spark, server, "RANGES", start=8, end=40).select("seq")
    wanted = [row["seq"] for row in plainly(remote) if 8 <= row["seq"] <= 40]
    assert sorted(row.seq for row in some.collect()) == wanted
    assert whole.where("seq < 5").count() == 4
    assert whole.where("seq > 95").count() == 5
    assert batch(spark, server, "RANGES", start=101).count() == 0


@pytest.mark.spark
def test_a_query_that_fails_and_is_started_again_has_each_message_once(
    spark: SparkSession, server: NatsProcess, broker: Admin, tmp_path: Path
) -> None:
    remote = filled(broker, "ONCE", 100)
    query = Query(spark, server.url, "ONCE", tmp_path)
    query.fails_at = 1
    with pytest.raises(PySparkException, match="the sink failed"):
        query.run(maxMessagesPerTrigger=40)
    query.run(maxMessagesPerTrigger=40)
    assert [len(rows) for rows in query.batches.values()] == [33, 40, 20]
    broker.publish("ONCE.c", [b"later"] * 5)
    query.run(maxMessagesPerTrigger=40)
    assert query.rows == plainly(remote)


@pytest.mark.spark
def test_a_query_fails_where_messages_were_missed_or_the_stream_is_another(
    spark: SparkSession, server: NatsProcess, broker: Admin, tmp_path: Path
) -> None:
    filled(broker, "LOSS", 40)
    query = Query(spark, server.url, "LOSS", tmp_path)
    query.run()
    broker.publish("LOSS.c", [b"x"] * 10)
    broker.api("STREAM.PURGE.LOSS", {"seq": 46})
    missed = r"removed sequences 41 to 45 \(5\) before they were read"
    with pytest.raises(PySparkException, match=missed):
        query.run()
    query.run(failOnDataLoss="false")
    assert [row["seq"] for row in query.rows][-6:] == [40, 46, 47, 48, 49, 50]
    broker.api("STREAM.DELETE.LOSS")
    time.sleep(FORGOTTEN_AFTER_S)
    filled(broker, "LOSS", 60)
    with pytest.raises(PySparkException, match="it was deleted and made anew, or restored"):
        query.run()
    query.run(failOnDataLoss="false")
    newest = query.batches[max(query.batches)]
    assert [row["seq"] for row in newest] == [
        row["seq"] for row in plainly(RemoteStream(broker.connection, "LOSS"))
    ]


def test_a_task_reads_only_the_stream_that_was_planned(server: NatsProcess, broker: Admin) -> None:
    remote = filled(broker, "PLANNED", 40)
    stream = NatsStream("PLANNED", server.url, None)
    created = stream.state().created
    rows = pa.concat_tables(stream.tables(Span(31, 40, created, fails_on_loss=True)))
    assert rows.to_pylist() == plainly(remote, 31)
    with pytest.raises(RefusedError, match="made anew"):
        next(stream.tables(Span(31, 40, "2020-01-01T00:00:00Z", fails_on_loss=False)))
    broker.api("STREAM.PURGE.PLANNED", {"seq": 36})
    with pytest.raises(RefusedError, match="removed sequences 31 to 35"):
        next(stream.tables(Span(31, 40, created, fails_on_loss=True)))
    left = pa.concat_tables(stream.tables(Span(31, 40, created, fails_on_loss=False)))
    assert left["seq"].to_pylist() == [36, 37, 38, 39, 40]


def test_a_stream_that_is_made_anew_while_a_task_reads_is_refused(
    server: NatsProcess, broker: Admin
) -> None:
    filled(broker, "ANEW", 40)
    stream = NatsStream("ANEW", server.url, None)
    reading = stream.tables(Span(31, 40, stream.state().created, fails_on_loss=True))
    next(reading)
    broker.api("STREAM.DELETE.ANEW")
    broker.create("ANEW")
    with pytest.raises(RefusedError, match="made anew"):
        list(reading)


def test_messages_that_are_removed_while_a_task_reads_are_told(
    server: NatsProcess, broker: Admin
) -> None:
    broker.create("RACE")
    broker.publish("RACE.a", [bytes(LARGE)] * 40)
    stream = NatsStream("RACE", server.url, None)
    created = stream.state().created
    strict, lenient = (
        stream.tables(Span(2, 40, created, fails_on_loss=fails)) for fails in (True, False)
    )
    seqs = [*next(strict)["seq"].to_pylist(), *next(lenient)["seq"].to_pylist()]
    broker.api("STREAM.PURGE.RACE", {"seq": 40})
    left = pa.concat_tables(lenient)["seq"].to_pylist()
    assert left[-1] == 40
    assert len(left) < 39 - max(seqs), "some were removed before they were read"
    with pytest.raises(RefusedError, match=r"removed sequences \d+ to 39 "):
        list(strict)


@pytest.mark.parametrize(
    ("seqs", "read_to"), [([5, 6, 7], 7), ([5, 7, 8], 5), ([6, 7], 4), ([5], 5)]
)
def test_the_end_of_what_is_read_without_a_gap(seqs: list[int], read_to: int) -> None:
    assert contiguous(pa.table({"seq": seqs}), 4) == read_to


@pytest.mark.parametrize("policy", ["workqueue", "interest"])
def test_a_stream_that_is_consumed_is_refused(
    server: NatsProcess, broker: Admin, policy: str
) -> None:
    broker.create(policy.upper(), retention=policy)
    with pytest.raises(UsageError, match=f"--mirror {policy.upper()} .* read {policy.upper()}_ARC"):
        NatsStream(policy.upper(), server.url, None).state()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"stream": "S"}, "no server is named"),
        ({"server": "h:1"}, "name one stream"),
        ({"server": "h:1", "stream": "S", "path": "T"}, "not both S and T|not both T and S"),
        ({"server": "h:1", "stream": "S.*"}, "is no name of a stream"),
        ({"server": "nats://me:secret@h:1", "stream": "S"}, r"`server` \(h:1\) holds a user"),
        ({"server": "h:1", "stream": "S", "password": "secret"}, "no option `password`: Spark"),
        ({"server": "h:1", "stream": "S", "failOnDataLoss": "false"}, "for a batch query"),
        ({"server": "h:1", "stream": "S", "start": "0"}, "`start` is a whole number from 1 on"),
        ({"server": "h:1", "stream": "S", "start": "9", "end": "8"}, "`end` is 8, which is below"),
    ],
)
def test_wrong_options_are_named_and_no_secret(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        reading_of(options, is_streaming=False)
    assert "secret" not in str(refused.value)


def test_options_of_streaming_queries() -> None:
    given = {"server": "h:1", "path": "S", "maxmessagespertrigger": "7", "failondataloss": "False"}
    reading = reading_of(given, is_streaming=True)
    assert (reading.batch_messages, reading.reach) == (7, LENIENT)
    with pytest.raises(UsageError, match="no option `end` for a streaming query"):
        reading_of(given | {"end": "9"}, is_streaming=True)
    with pytest.raises(UsageError, match="`failOnDataLoss` is true or false, not 'no'"):
        reading_of(given | {"failondataloss": "no"}, is_streaming=True)


def test_a_query_begins_with_what_the_stream_still_holds() -> None:
    begin = first_offset(NOW, STRICT)
    assert begin == Offset("T1", 1)
    end = latest_offset(begin, NOW, STRICT, 10)
    assert end == Offset("T1", 21)
    assert span_of(begin, end, NOW, STRICT) == Span(11, 20, "T1", fails_on_loss=False)
    with pytest.raises(RefusedError, match="ends at sequence 50, and the option `start` is 52"):
        first_offset(NOW, Reach(52, fails_on_loss=True))
    assert first_offset(NOW, Reach(51, fails_on_loss=True)) == Offset("T1", 51)


@pytest.mark.parametrize(
    ("start", "sentence", "accepted"),
    [
        (Offset("T1", 11), None, Offset("T1", 51)),
        (Offset("T1", 51), None, Offset("T1", 51)),
        (Offset("T1", 10), r"removed sequences 10 to 10 \(1\)", Offset("T1", 51)),
        (Offset("T1", 52), "ends at sequence 50, and was read or planned to 51", Offset("T1", 51)),
        (Offset("T0", 40), r"made anew, or restored; .*start=40", Offset("T1", 51)),
    ],
)
def test_the_end_of_a_batch(start: Offset, sentence: str | None, accepted: Offset) -> None:
    assert latest_offset(start, NOW, LENIENT, None) == accepted
    limited = latest_offset(start, NOW, LENIENT, 5)
    held = start.created == NOW.created and start.next > NOW.first_seq
    assert limited.next == min((start.next if held else NOW.first_seq) + 5, NOW.last_seq + 1)
    if sentence is None:
        assert latest_offset(start, NOW, STRICT, None) == accepted
    else:
        with pytest.raises(RefusedError, match=sentence):
            latest_offset(start, NOW, STRICT, None)


@pytest.mark.parametrize(
    ("start", "end", "sentence", "accepted"),
    [
        (Offset("T1", 20), Offset("T1", 31), None, (20, 30)),
        (Offset("T1", 20), Offset("T1", 20), None, None),
        (Offset("T1", 5), Offset("T1", 31), "removed sequences 5 to 10", (11, 30)),
        (Offset("T1", 40), Offset("T1", 61), "planned to 60", (40, 50)),
        (Offset("T0", 20), Offset("T0", 31), "made anew", None),
    ],
)
def test_a_repeated_batch_is_compared_with_the_stream(
    start: Offset, end: Offset, sentence: str | None, accepted: tuple[int, int] | None
) -> None:
    span = span_of(start, end, NOW, LENIENT)
    assert (None if span is None else (span.first, span.last)) == accepted
    if sentence is None:
        strict = span_of(start, end, NOW, STRICT)
        assert strict == (span and replace(span, fails_on_loss=True))
    else:
        with pytest.raises(RefusedError, match=sentence):
            span_of(start, end, NOW, STRICT)


def test_sequences_that_a_task_did_not_read_before_they_were_removed() -> None:
    span = Span(5, 30, "T1", fails_on_loss=True)
    refuse_changed(span, NOW, 10)
    with pytest.raises(RefusedError, match=r"removed sequences 10 to 10 \(1\)"):
        refuse_changed(span, NOW, 9)
