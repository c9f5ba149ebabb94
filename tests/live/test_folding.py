"""A log captured from a server, folded by the command: states and releases equal the server's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

from tests.support.ack_program import AckProgram
from tests.support.nats_oracle import Nats, server
from tests.support.sandboxes import Commands, commands

pytestmark = pytest.mark.live

STREAM = "ORDERS"
LAST_SEQ = 60
KINDS = ("new", "paid", "gone")
HOUR = 3600 * 10**9
CONSUMERS: list[dict[str, Any]] = [
    {"durable_name": "all", "ack_policy": "explicit", "ack_wait": HOUR},
    {
        "durable_name": "paid",
        "ack_policy": "explicit",
        "ack_wait": HOUR,
        "filter_subject": "orders.paid",
    },
    {"durable_name": "audit", "ack_policy": "all", "ack_wait": HOUR},
]
CONFIG = {"name": STREAM, "subjects": ["orders.>"], "retention": "interest"}


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


@pytest.fixture
def orders(nats: Nats, tmp_path: Path) -> Iterator[Commands]:
    """Sixty messages on a server and in a warehouse, and the same consumers of both."""
    nats.request(f"STREAM.CREATE.{STREAM}", {**CONFIG, "storage": "file"})
    for one in CONSUMERS:
        asked = {"stream_name": STREAM, "config": one}
        nats.request(f"CONSUMER.CREATE.{STREAM}.{one['durable_name']}", asked)
    sent = [(f"orders.{KINDS[seq % 3]}", b"x", None) for seq in range(1, LAST_SEQ + 1)]
    nats.publish(sent)
    command = commands(tmp_path, CONFIG)
    said = "\n".join(json.dumps({"subject": one[0], "data": "x"}) for one in sent)
    command.json("publish", STREAM, stdin=said)
    for one in CONSUMERS:
        file = tmp_path / "consumer.json"
        file.write_text(json.dumps(one))
        command.json("consumer", "add", STREAM, one["durable_name"], "--from", file)
    yield command
    nats.delete(STREAM)


def work(program: AckProgram) -> None:
    """All policies: any order, naks, redeliveries, abandoned messages, and some pending."""
    some = program.fetch("all", 40)
    program.answer_all(some[10:30], b"+ACK")
    program.answer_all([some[2], some[4]], b"-NAK")
    again = program.fetch("all", 2)
    program.answer(again[0], b"+ACK")
    program.answer(some[0], b"+TERM broken")
    program.answer(some[1], b"+WPI")
    paid = program.fetch("paid", 15)
    program.answer_all([*paid[:6], *paid[8:12]], b"+ACK")
    program.answer(paid[7], b"nonsense")
    audit = program.fetch("audit", 35)
    program.answer(audit[29], b"+ACK")


def as_lines(program: AckProgram) -> list[dict[str, str]]:
    return [
        {"reply": reply} if body is None else {"subject": reply, "data": body.decode()}
        for reply, body in program.log
    ]


def as_json(path: Path, lines: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def as_parquet(path: Path, lines: list[dict[str, str]]) -> Path:
    file = path.with_suffix(".parquet")
    parquet.write_table(pa.Table.from_pylist(lines, schema=_SHAPE), file)
    return file


def as_delta(path: Path, lines: list[dict[str, str]]) -> Path:
    write_deltalake(path, pa.Table.from_pylist(lines, schema=_SHAPE), mode="overwrite")
    return path


_SHAPE = pa.schema([("subject", pa.string()), ("data", pa.string()), ("reply", pa.string())])
_SHOWN = ("delivered", "ack_floor")
_COUNTS = ("num_ack_pending", "num_redelivered")


def shown(info: dict[str, Any]) -> dict[str, Any]:
    places = {
        name: {count: info[name][count] for count in ("consumer_seq", "stream_seq")}
        for name in _SHOWN
    }
    return places | {name: info[name] for name in _COUNTS}


@pytest.mark.parametrize("write", [as_json, as_parquet, as_delta])
def test_a_captured_log_ends_in_the_states_and_messages_of_the_server(
    nats: Nats, orders: Commands, write: Any, tmp_path: Path
) -> None:
    program = AckProgram(nats, STREAM)
    work(program)
    log = write(tmp_path / "acks", as_lines(program))
    [done] = orders.json("consumer", "fold", STREAM, log)
    assert (done["rows"], done["before"]) == (len(program.log), 0)
    assert (done["malformed"], done["unknown_consumers"], done["other_streams"]) == ([], {}, {})
    for one in orders.json("consumer", "ls", STREAM):
        theirs = nats.request(f"CONSUMER.INFO.{STREAM}.{one['name']}", {})
        assert shown(one) == shown(theirs)
    orders.json("apply", STREAM, "--yes")
    left = orders.run("messages", STREAM, "--format", "jsonl").stdout.splitlines()
    seqs = [json.loads(line)["seq"] for line in left]
    theirs_left = [message.seq for message in nats.survivors(STREAM)]
    assert seqs == theirs_left
    assert 0 < len(seqs) < LAST_SEQ
