"""Times in another unit on the command line: one sentence, nothing stored, and an option to accept them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.sandboxes import NOW, ORDERS, Commands, commands
from tests.support.topics import World, line

MILLISECONDS = json.dumps({"subject": "orders.a", "data": "x", "ts_ns": NOW // 10**6})
SAID = (
    "line 2: ts_ns 1800000000000 is 1970-01-01T00:30:00Z, before 1990; it is 2027-01-15T08:00:00Z if milliseconds are "
    "meant: multiply by 1,000,000; --any-time, in Python any_time=True, takes such times as they are; nothing was "
    "stored; correct it and try again"
)


@pytest.fixture
def orders(tmp_path: Path) -> Commands:
    return commands(tmp_path, ORDERS)


def test_milliseconds_are_not_published_as_nanoseconds(orders: Commands) -> None:
    lines = '{"subject": "orders.a"}\n' + MILLISECONDS
    refused = orders.run("publish", "ORDERS", stdin=lines)
    assert (refused.exit_code, refused.stderr.strip()) == (2, SAID)
    assert orders.json("state", "ORDERS")[0]["messages"] == 0
    assert orders.run("publish", "ORDERS", "--any-time", stdin=lines).exit_code == 0
    assert orders.json("state", "ORDERS")[0]["last_ts_ns"] == NOW // 10**6


def test_lines_with_such_times_are_left_out_where_others_are_published(orders: Commands) -> None:
    rejects = orders.folder / "rejects.jsonl"
    lines = MILLISECONDS + '\n{"subject": "orders.a"}\n'
    assert orders.run("publish", "ORDERS", "--rejects", rejects, stdin=lines).exit_code == 0
    assert orders.json("state", "ORDERS")[0]["messages"] == 1
    assert "if milliseconds are meant" in json.loads(rejects.read_text())["error"]["description"]


def test_a_producers_time_of_a_topic_is_held_to_the_same(tmp_path: Path) -> None:
    topic = Commands(World(tmp_path, "parquet").folder)
    seconds = line(origin_ts_ns=NOW // 10**9)
    refused = topic.run("publish", "clicks", stdin=seconds)
    assert refused.exit_code == 2
    assert "origin_ts_ns 1800000000 is" in refused.stderr
    assert "if seconds are meant: multiply by 1,000,000,000" in refused.stderr
    assert topic.run("publish", "clicks", "--any-time", stdin=seconds).exit_code == 0


def test_acks_of_messages_with_such_times_are_not_folded(orders: Commands) -> None:
    orders.run("publish", "ORDERS", stdin='{"subject": "orders.a"}')
    orders.json("consumer", "add", "ORDERS", "all")
    log = orders.folder / "acks.jsonl"
    log.write_text(f'{{"subject": "$JS.ACK.ORDERS.all.1.1.1.{NOW // 10**3}.0", "data": "+ACK"}}\n')
    refused = orders.run("consumer", "fold", "ORDERS", log)
    assert (refused.exit_code, refused.stderr.strip()) == (
        2,
        f"line 1 of {log}, an ack of message 1 of ORDERS: the time of its message, 1800000000000000 is "
        "1970-01-21T20:00:00Z, before 1990; it is 2027-01-15T08:00:00Z if microseconds are meant: multiply by 1,000; "
        "--any-time, in Python any_time=True, takes such times as they are; nothing was folded; correct the log",
    )
    [folded] = orders.json("consumer", "fold", "ORDERS", log, "--any-time")
    assert folded["consumers"]["all"]["settling"] == 1
