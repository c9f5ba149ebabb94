"""Logs of acks folded by Spark tasks: the same states and reports as in this process, in bounded pieces."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from retention.api.stream import Stream
from retention.engines.select import EngineName
from retention.engines.spark.engine import SparkEngine
from retention.errors import RefusedError, UsageError
from retention.formats.ack import sources
from retention.interest import ack_fold
from retention.interest.ack_fold import FoldedLog
from retention.stores.consumer_table import ConsumerTable
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MESSAGES = 60
POLICIES = ("explicit", "all", "none")
NAMES = [f"{policy}-{number}" for policy in POLICIES for number in range(3)]
BODIES = ["+ACK", "-NAK", "+WPI", "+TERM", "+NXT", "nonsense"]
ENGINES: tuple[EngineName, ...] = ("local", "spark")
Line = dict[str, Any]


def reply(seq: int, consumer: str, own: int, count: int, stream: str = "ORDERS") -> str:
    return f"$JS.ACK.{stream}.{consumer}.{count}.{seq}.{own}.{1_700_000_000_000_000_000 + seq}.0"


def heard(consumer: str, dice: random.Random) -> Iterator[Line]:
    """A consumer's lines for a lossy observer: repeated deliveries, and answers."""
    sent: list[tuple[int, int, int]] = []
    seq = 0
    for own in range(1, 90):
        seq, count, at = (
            (seq + 1, 1, seq + 1) if seq < MESSAGES and dice.random() < 0.7 else (seq, 2, 0)
        )
        if count == 2 and not sent:
            continue
        delivery = (at or dice.choice(sent)[0], own, count)
        sent.append(delivery)
        if dice.random() < 0.8:
            yield {"reply": reply(delivery[0], consumer, own, count)}
        if dice.random() < 0.7:
            answered = dice.choice(sent[-6:])
            body = dice.choices(BODIES, [20, 2, 1, 2, 1, 1])[0]
            yield {"subject": reply(answered[0], consumer, *answered[1:]), "data": body}


def log_of(seed: int) -> list[Line]:
    """Interleaved lines of all consumers, of an unknown one, of another stream, and of none."""
    dice = random.Random(seed)
    others = [
        {"subject": reply(1, "stranger", 1, 1), "data": "+ACK"},
        {"subject": reply(1, "x", 1, 1, "OTHER"), "data": "+ACK"},
        {"subject": "no.reply", "data": ""},
    ]
    talking = [heard(name, dice) for name in NAMES]
    lines: list[Line] = []
    while talking:
        one = dice.choice(talking)
        line = next(one, None)
        if line is None:
            talking.remove(one)
        else:
            lines += [line, *(dice.choices(others) if dice.random() < 0.05 else [])]
    return lines


def stream_for(folder: Path, engine: EngineName) -> Stream:
    consumers = [
        {"durable_name": name, "ack_policy": name.partition("-")[0], "max_ack_pending": -1}
        for name in NAMES
    ]
    warehouse = warehouse_with(
        folder / engine,
        "delta",
        START + 99 * SECOND,
        engine,
        retention="interest",
        consumers=consumers,
    )
    stream = warehouse.new_stream("ORDERS")
    lay(stream.opened, even_segments(6, 10))
    return stream


def told(folded: FoldedLog) -> dict[str, Any]:
    """A report without its tables."""
    return vars(folded) | {
        "consumers": {
            name: (replace(report, missing=pa.table({})), report.missing.to_pylist())
            for name, report in folded.consumers.items()
        }
    }


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs read in small parts, and folded in small pieces."""
    monkeypatch.setattr(sources, "PART_BYTES", 1_500)
    monkeypatch.setattr(ack_fold, "PIECE_ROWS", 70)


@pytest.fixture
def large_texts(spark: SparkSession) -> Iterator[Callable[[bool], None]]:
    """A switch between Arrow's normal and large types for texts and binaries in tasks."""
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    yield lambda on: spark.conf.set(name, on)
    spark.conf.unset(name)


def write_log(place: Path, lines: list[Line]) -> str:
    columns = {name: [line.get(name) for line in lines] for name in ("subject", "data", "reply")}
    parquet.write_table(pa.table(columns), place, row_group_size=30)
    return str(place)


@pytest.mark.usefixtures("pieces")
def test_states_and_reports_are_those_of_this_process(
    large_texts: Callable[[bool], None], tmp_path: Path
) -> None:
    lines = log_of(7)
    streams = {engine: stream_for(tmp_path, engine) for engine in ENGINES}
    for end, large in ((len(lines) // 3, False), (len(lines), True)):
        large_texts(large)
        log = write_log(tmp_path / "acks.parquet", lines[:end])
        [ours], [theirs] = (streams[engine].consumers.fold(log, name="acks") for engine in ENGINES)
        assert told(ours) == told(theirs)
        assert set(ours.consumers) == set(NAMES)
        assert [*ours.unknown_consumers, *ours.other_streams] == ["stranger", "OTHER"]
        tables = [ConsumerTable(streams[engine].opened.root) for engine in ENGINES]
        for name in NAMES:
            here, there = (table.read(name) for table in tables)
            assert here is not None
            assert there is not None
            assert (here.state, here.folded) == (there.state, there.folded), name


@pytest.mark.parametrize(
    ("line", "error", "why"),
    [
        (
            {"subject": reply(MESSAGES + 1, NAMES[0], 1, 1), "data": ""},
            RefusedError,
            "is about message 61",
        ),
        ({"data": "x"}, UsageError, "it must have either subject"),
    ],
)
def test_what_this_process_refuses_tasks_refuse_alike(
    spark: SparkSession, tmp_path: Path, line: Line, error: type[Exception], why: str
) -> None:
    log = write_log(tmp_path / "acks.parquet", [*log_of(9)[:40], line])
    sentences = []
    for engine in ENGINES:
        stream = stream_for(tmp_path, engine)
        with pytest.raises(error, match=why) as caught:
            stream.consumers.fold(log)
        sentences.append(str(caught.value))
        stored = ConsumerTable(stream.opened.root).read(NAMES[0])
        assert stored is not None
        assert not stored.folded
    assert sentences[0] == sentences[1]


@pytest.mark.usefixtures("pieces")
def test_what_comes_back_are_states_not_lines(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    run: Callable[..., Any] = SparkEngine.grouped

    def grouped(*asked: Any) -> Any:
        given.append(run(*asked))
        return given[-1]

    monkeypatch.setattr(SparkEngine, "grouped", grouped)
    monkeypatch.setattr(SparkEngine, "map", None)
    lines = log_of(10)
    stream_for(tmp_path, "spark").consumers.fold(write_log(tmp_path / "acks.parquet", lines))
    [(asides, folded)] = given
    assert len(asides) == int(np.ceil(len(lines) / 30)), "one for each row group"
    assert folded.keys() == set(NAMES)
