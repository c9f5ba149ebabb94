"""Passes with `mode: replay` on every store and engine: the same plans, and what one replay of everything holds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from retention.api.stream import Stream
from retention.core.units import HOUR, SECOND
from tests.contract.conftest import FORMATS
from tests.support.laying import START, warehouse_with

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LIMITS = {
    "mode": "replay",
    "max_msgs": 9,
    "max_msgs_per_subject": 4,
    "max_age": "30s",
    "allow_msg_ttl": True,
    "duplicate_window": "5s",
}


def appended(stream: Stream, chance: random.Random, since: int) -> None:
    """Append ten messages, a second each."""
    blocks = (None, b"Nats-TTL: 3s", b"Nats-Msg-Id: x", b"Nats-Msg-Id: y")
    lines = [chance.choice(blocks) for _ in range(10)]
    stream.append(
        {
            "subject": chance.choice("abc"),
            "payload": b"z" * chance.randrange(9),
            "ts_ns": START + (since + number) * SECOND,
            "headers": line and b"NATS/1.0\r\n" + line + b"\r\n\r\n",
        }
        for number, line in enumerate(lines)
    )


def seqs(stream: Stream) -> list[int]:
    return [seq for table in stream.messages() for seq in table["seq"].to_pylist()]


@pytest.mark.parametrize("format_", FORMATS)
def test_every_store_and_engine_leaves_what_one_replay_holds(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    del spark
    removed = {}
    for engine in ("local", "spark"):
        chance, now_ns = random.Random(7), START + HOUR
        limits = {**LIMITS, "segment_span": "10s"}
        warehouse = warehouse_with(tmp_path / engine, format_, now_ns, engine, **limits)
        stream = warehouse.new_stream("ORDERS")
        raw = warehouse_with(tmp_path / "raw", format_, now_ns).new_stream(f"RAW_{engine}")
        copy = random.Random(7)
        reports = []
        for since in (0, 10, 20, 30):
            appended(stream, chance, since)
            appended(raw, copy, since)
            at_ns = START + (since + 6) * SECOND
            reports.append(stream.plan(at_ns).apply().by_rule)
            settings = {key: value for key, value in LIMITS.items() if key != "mode"}
            held = raw.replay([at_ns], **settings).held()["seq"].to_pylist()
            later = range(since + 8, since + 11)
            assert seqs(stream) == [*held, *later]
        removed[engine] = reports
    assert removed["local"] == removed["spark"]
    assert {rule for report in removed["local"] for rule in report} >= {"max_msgs", "duplicate"}
