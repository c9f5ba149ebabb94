"""Concurrent appenders, readers and two maintenance runs: none fails, and every message is stored once."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.laying import START, even_segments, lay, warehouse_with
from tests.support.minutes import EACH, EVERY_S, LONGEST_S, Crew, Query, repeating
from tests.support.mirrors import mirror
from tests.support.witness import LIMITS, Seen, ever_appended, pairs, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = "RETENTION_CONCURRENCY" in os.environ
SECONDS = float(os.environ.get("RETENTION_CONCURRENCY", "6"))
"""The duration in seconds: `make long NAME=concurrency` sets 60."""
LAID = 120
BEFORE = ["x"] * LAID
KILLS = max(1, int(SECONDS // 15))
POLARS = "read:scan_delta+read_delta"
MAINTAINERS = ("maintain:first", "maintain:second")


def begin(folder: Path, format_: str) -> str:
    """Create a stream with some messages; returns the location of its table."""
    warehouse = warehouse_with(folder, format_, START, **LIMITS)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(4, LAID // 4))
    return str(folder / "streams" / "ORDERS" / "messages")


def await_messages(folder: Path, count: int) -> None:
    """Wait until that many messages were stored in the stream."""
    until = time.monotonic() + LONGEST_S
    while len(ever_appended(folder)) < count:
        assert time.monotonic() < until, "the query commits nothing"
        time.sleep(0.1)


def told(name: str, numbers: dict[str, Any]) -> None:
    """Print the numbers of a minute; `make long NAME=concurrency` shows them."""
    print(f"\n{name}, {SECONDS:g} s at once")
    for key, value in numbers.items():
        print(f"  {key}: {value}")


def published(results: dict[str, dict[str, Any]]) -> list[str]:
    """The messages sent by the appenders."""
    return [payload for result in results.values() for payload in result.get("acks", {}).values()]


class SparkReader:
    """Batch reads and a streaming query of the whole stream, by delta-spark."""

    def __init__(self, spark: SparkSession, table: str, options: dict[str, str]) -> None:
        self._spark, self._table = spark, table
        self.seen = Seen()
        source = spark.readStream.format("delta").options(**options).load(table)
        self._query = (
            source.select("seq", "payload")
            .writeStream.format("memory")
            .queryName("streamed")
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    def read(self) -> None:
        """Read the table once."""
        frame = self._spark.read.format("delta").load(self._table).select("seq", "payload")
        self.seen.state(pairs(frame.toArrow()))

    def streamed(self) -> list[tuple[int, bytes]]:
        """All rows received by the streaming query, in order of sequence."""
        self._query.processAllAvailable()
        self._query.stop()
        found = sorted(pairs(self._spark.table("streamed").toArrow()))
        self._spark.sql("DROP VIEW streamed")
        return found


class Mirror:
    """delta-spark as a mirror of a broker: it appends rows with sequences."""

    SEGMENT = 30

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark, self._table = spark, table
        self._next = LAID + 1
        self.sent: list[str] = []

    def append(self) -> None:
        """Append the next messages to the segment chosen by the mirror."""
        segment = (self._next - 1) // self.SEGMENT * self.SEGMENT + 1
        seqs = range(self._next, self._next + EACH)
        mirror(self._spark, self._table, seqs, segment)
        self.sent += [f"mirror-{seq}" for seq in seqs]
        self._next += EACH


class Feeder:
    """A writer of message files into the directory of the streaming query."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "arriving"
        self._folder.mkdir()
        self.sent: list[str] = []

    def feed(self) -> None:
        """Write one file atomically."""
        payloads = [f"query-{len(self.sent) + n}" for n in range(EACH)]
        lines = [
            json.dumps({"subject": "q", "payload": one, "ts_ns": time.time_ns()})  # noqa: TID251  (now)
            for one in payloads
        ]
        hidden = self._folder / f".{len(self.sent)}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self._folder / f"{len(self.sent):08d}.json")
        self.sent += payloads


@pytest.mark.spark
@pytest.mark.skipif(not WHOLE, reason="`make long NAME=concurrency` has the time")
def test_our_appenders_and_a_sink_that_is_killed_with_readers_and_two_maintainers(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = begin(tmp_path, "delta")
    feeder = Feeder(tmp_path)
    reader = SparkReader(spark, table, {"skipChangeCommits": "true"})
    roles = ("append:a", "append:b", "append:c", *MAINTAINERS, "read:ours", POLARS)
    with Query(tmp_path) as query, Crew(tmp_path, SECONDS, *roles) as crew:
        feeder.feed()
        await_messages(tmp_path, LAID + EACH)
        crew.go()
        with repeating(reader.read), repeating(feeder.feed, every_s=EVERY_S):
            for _ in range(KILLS):
                time.sleep(SECONDS / (KILLS + 1))
                query.kill()
            results = crew.results()
        query.finish()
    results["read delta-spark"] = {"states": reader.seen.states, "messages": reader.seen.messages}
    numbers = settle(tmp_path, BEFORE + published(results) + feeder.sent, results)
    streamed = reader.streamed()
    assert streamed == sorted(ever_appended(tmp_path)), "what skipChangeCommits shows"
    told(
        "ours only",
        numbers
        | {"sink": f"{len(feeder.sent)} messages, {KILLS} kills", "streamed": len(streamed)},
    )


@pytest.mark.thorough
@pytest.mark.spark
def test_a_foreign_mirror_with_readers_and_two_maintainers(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = begin(tmp_path, "delta")
    mirror = Mirror(spark, table)
    reader = SparkReader(spark, table, {"skipChangeCommits": "true"})
    roles = (*MAINTAINERS, "read:ours", POLARS)
    with Crew(tmp_path, SECONDS, *roles) as crew:
        mirror.append()
        crew.go()
        with repeating(reader.read), repeating(mirror.append, every_s=EVERY_S):
            results = crew.results()
    results["read delta-spark"] = {"states": reader.seen.states, "messages": reader.seen.messages}
    numbers = settle(tmp_path, BEFORE + mirror.sent, results)
    streamed = reader.streamed()
    assert streamed == sorted(ever_appended(tmp_path)), "what skipChangeCommits shows"
    told("a mirror", numbers | {"mirrored": len(mirror.sent), "streamed": len(streamed)})


def test_plain_parquet_with_appenders_readers_and_two_maintainers(tmp_path: Path) -> None:
    begin(tmp_path, "parquet")
    roles = ("append:a", "append:b", *MAINTAINERS, "read:ours", "read:polars")
    with Crew(tmp_path, SECONDS / 2, *roles) as crew:
        crew.go()
        results = crew.results()
    told("parquet", settle(tmp_path, BEFORE + published(results), results))
