"""Counters, schedules, batches and sources on publish: answers and stored messages equal the server's."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.core import headers as blocks
from retention.errors import RetentionError
from retention.formats.nats.backup import read_backup
from retention.ingest.publish import publish
from tests.retention.core.test_schedules import REFUSED, TAKEN
from tests.support.nats_oracle import Message, Nats, messages_of, server
from tests.support.plain_store import at, configured, opened_stream, store_of
from tests.support.sandboxes import opened

pytestmark = pytest.mark.live
MESSAGES = 150
START = 1_700_000_000 * 10**9

STREAMS: dict[str, dict[str, Any]] = {
    "PLAIN": {"max_msg_size": 200, "allow_rollup_hdrs": True},
    "COUNTERS": {"allow_msg_counter": True, "max_msg_size": 200},
    "COUNTERS_RENAMED": {
        "allow_msg_counter": True,
        "allow_rollup_hdrs": True,
        "subject_transform": {"src": "*.*", "dest": "{{wildcard(1)}}.z.{{left(2,1)}}"},
    },
    "SCHEDULES": {"allow_msg_schedules": True, "max_msg_size": 200},
    "SCHEDULES_TTL": {"allow_msg_schedules": True, "allow_msg_ttl": True},
}
SELDOM = ("@at 2099-01-01T00:00:00Z", "@every 10000h", "0 0 0 29 2 *", "@hour", "1 2 3")
"""None of these is due during the test."""


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as running:
        yield running


def some_headers(chance: random.Random, name: str) -> dict[str, str]:
    counts, schedules = name.startswith("COUNTERS"), name.startswith("SCHEDULES")
    possible = {
        "Nats-Incr": (
            chance.choice(["1", "+10", "-3", "007", "0", "x", "1_0", "+-1"]),
            0.9 if counts else 0.1,
        ),
        "Nats-Counter-Sources": ("{}", 0.05),
        "Nats-Msg-Id": (f"id{chance.randrange(40)}", 0.15 * (not schedules)),
        "Nats-TTL": (chance.choice(["never", "1h"]), 0.1),
        "Nats-Expected-Stream": (chance.choice([name, "OTHER"]), 0.05),
        "Nats-Expected-Last-Sequence": (str(chance.randrange(9)), 0.05),
        "Nats-Rollup": (chance.choice(["sub", "SUB", "all", "x", ""]), 0.1),
        "Nats-Schedule": (chance.choice(SELDOM), 0.7 if schedules else 0.1),
        "Nats-Schedule-Target": (
            chance.choice([f"{name}.t"] * 9 + [f"{name}.a", "other", f"{name}.>", ""]),
            0.8 if schedules else 0.1,
        ),
        "Nats-Schedule-Source": (chance.choice([f"{name}.q", f"{name}.t", "no", ""]), 0.1),
        "Nats-Schedule-TTL": (chance.choice(["5m", "x", "never", "00"]), 0.1),
        "Nats-Schedule-Rollup": (chance.choice(["sub", "all", ""]), 0.1),
        "Nats-Schedule-Time-Zone": (chance.choice(["UTC", "Nowhere", ""]), 0.07),
        "Nats-Schedule-Next": (chance.choice(["later", ""]), 0.05),
        "Nats-Scheduler": (chance.choice([f"{name}.a", ""]), 0.05),
        "Nats-Batch-Id": (chance.choice(["one", ""]), 0.05),
        "Nats-Batch-Sequence": ("1", 0.05),
        "Nats-Stream-Source": (chance.choice(["O 1 > > o", ""]), 0.05),
    }
    return {key: value for key, (value, share) in possible.items() if chance.random() < share}


def theirs(nats: Nats, subject: str, payload: str, headers: dict[str, str]) -> Any:
    ack = nats.publish_one(subject, payload.encode(), headers or None)
    if "error" in ack:
        return ack["error"]["err_code"]
    return ack["seq"], ack.get("duplicate", False), ack.get("val")


def ours(stream: Any, subject: str, payload: str, headers: dict[str, str]) -> Any:
    line = json.dumps({"subject": subject, "data": payload, "headers": headers})
    try:
        (ack,) = publish(stream, [line]).acks()
    except RetentionError as error:
        code = re.search(r"server error (\d+)", str(error))
        return int(code[1]) if code else str(error)
    return ack.seq, ack.duplicate, ack.val


def kept(stream: Any) -> list[tuple[int, str, bytes, bytes]]:
    rows = store_of(stream).rows().select(["seq", "subject", "headers", "payload"]).to_pylist()
    return [(one["seq"], one["subject"], one["headers"] or b"", one["payload"]) for one in rows]


@pytest.mark.parametrize("name", STREAMS)
def test_every_answer_is_the_servers(nats: Nats, tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    config = {"name": name, "subjects": [f"{name}.*"], **STREAMS[name]}
    nats.request(f"STREAM.CREATE.{name}", config)
    stream = configured(opened_stream(tmp_path), **config)
    codes = set()
    for number in range(MESSAGES):
        payload = "x" * chance.choice([0, 0, 0, 0, 3, 250])
        message = (f"{name}.{chance.choice('abc')}", payload, some_headers(chance, name))
        answer = theirs(nats, *message)
        assert ours(at(stream, START + number), *message) == answer, message
        codes.add(answer if isinstance(answer, int) else "stored")
    assert "stored" in codes
    assert len(codes) >= 8
    survivors = [(one.seq, one.subject, one.headers, one.payload) for one in nats.survivors(name)]
    assert kept(stream) == survivors
    nats.delete(name)


@pytest.mark.parametrize(
    "payload",
    PAYLOADS := (
        *(
            b"",
            b"x",
            b"{}",
            b'{"val":5}',
            b'{"val":"x"}',
            b'{"val":"7","z":1}',
            b'{"VAL":"8"}',
            b"null",
        ),
        *(
            b"[]",
            b'[["val","3"]]',
            b'{"val":null}',
            b'"5"',
            b"5",
            b' {"val":"9"} ',
            b'{"val":"1"}{}',
        ),
        *(
            b'{"val":"+3"}',
            b'{"val":"3_0"}',
            b'{"val":"1","val":"2"}',
            b'{"val":" 4"}',
            b'{"val":NaN}',
        ),
        *(
            b'\xff{"val":"4"}',
            b'{"val":"\xff"}',
            b'{"val":"0x10"}',
            b'{"val":""}',
            b'{"val":"-0"}',
            b"0",
        ),
        *(b'{"val":"1","val":null}', b'{"val":"1","val":3}', b"false", b'""', b'{"val":["1"]}'),
    ),
)
def test_totals_are_read_as_by_the_server(nats: Nats, tmp_path: Path, payload: bytes) -> None:
    check_counted(nats, tmp_path, b"", payload, {"Nats-Incr": "1"})


@pytest.mark.parametrize(
    "sources",
    [
        *("{}", '{"o":{"a":"1"}}', "x", "null", '{"o":null}', "[]", '{"o":5}', '{"o":{"a":5}}'),
        '{"b":{},"a":{"z":"1","c":"<&>é"}}',
    ],
)
@pytest.mark.parametrize("given", [{}, {"Nats-Counter-Sources": "mine"}])
def test_sources_of_a_counter_are_kept(
    nats: Nats, tmp_path: Path, sources: str, given: dict[str, str]
) -> None:
    block = blocks.build([("Nats-Counter-Sources", sources)])
    check_counted(nats, tmp_path, block, b'{"val":"1"}', {"Nats-Incr": "1", **given, "A": "b"})


TO_ITSELF = {"Nats-Schedule": "@at 2099-01-01T00:00:00Z", "Nats-Schedule-Target": "Z.t"}


def test_sizes_of_schedules_are_asked_where_the_server_asks(nats: Nats, tmp_path: Path) -> None:
    limits = {"allow_msg_schedules": True, "allow_msg_ttl": True, "max_msg_size": 200}
    config = {"name": "Z", "subjects": ["Z.*"], **limits}
    nats.request("STREAM.CREATE.Z", config)
    stream = configured(opened_stream(tmp_path), **config)
    codes = []
    for number, (size, more) in enumerate(
        [
            (182, {"Nats-Msg-Id": "1"}),
            (183, {}),
            (200, {"Nats-Rollup": "sub"}),
            (201, {"Nats-Schedule": "nonsense"}),
            (190, {"Nats-Schedule": "nonsense"}),
            (190, {"Nats-Expected-Last-Sequence": "77"}),
            (190, {"Nats-Expected-Last-Msg-Id": "77"}),
            (190, {"Nats-Msg-Id": "1"}),
            (190, {"Nats-TTL": "x"}),
            (180, {"Nats-TTL": "x"}),
        ]
    ):
        named = TO_ITSELF | more
        payload = "x" * (size - len(blocks.build(list(named.items()))))
        answer = theirs(nats, "Z.a", payload, named)
        assert ours(at(stream, START + number), "Z.a", payload, named) == answer, (size, more)
        codes.append(answer if isinstance(answer, int) else "stored")
    assert codes == ["stored", 10054, "stored", 10054, 10189, 10071, 10070, "stored", 10054, 10165]
    nats.delete("Z")


def test_deletions_expect_revisions_as_the_server_does(nats: Nats, tmp_path: Path) -> None:
    config = {"name": "KV_b", "subjects": ["$KV.b.>"], "max_msgs_per_subject": 5}
    nats.request("STREAM.CREATE.KV_b", {**config, "allow_rollup_hdrs": True, "max_msg_size": 200})
    place = tmp_path / "retention.yaml"
    buckets = [{"name": "b", "history": 5, "max_value_size": 200}]
    place.write_text(json.dumps({"warehouse": ".", "buckets": buckets}), encoding="utf-8")
    bucket = open_warehouse(place).kv("b")
    for operation, key, value, revision in (
        ("DEL", "k", "", 0),
        ("DEL", "k", "", 0),
        ("PURGE", "k", "", 0),
        ("DEL", "k", "", 1),
        ("PURGE", "other", "", 0),
        (None, "k", "x" * 200, 77),
        (None, "k", "x", 77),
    ):
        named = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        named |= {"KV-Operation": operation} if operation else {}
        named |= {"Nats-Rollup": "sub"} if operation == "PURGE" else {}
        answer = theirs(nats, f"$KV.b.{key}", value, named)
        act = {"DEL": bucket.delete, "PURGE": bucket.purge}.get(operation or "")
        try:
            done: Any = act(key, revision) if act else bucket.update(key, value, revision)
        except RetentionError as error:
            code = re.search(r"server error (\d+)", str(error))
            done = int(code[1]) if code else str(error)
        assert done == (answer if isinstance(answer, int) else answer[0]), (operation, key)
    nats.delete("KV_b")


def check_counted(
    nats: Nats, folder: Path, block: bytes, payload: bytes, headers: dict[str, str]
) -> None:
    """Check that a message after one with this header block and payload is answered and stored as by a server."""
    config = {"name": "C", "subjects": ["C.*"], "allow_msg_counter": True}
    nats.restore("C", config, [Message(1, "C.a", START, block, payload)])
    nats.snapshot("C", folder / "C")
    stream = opened(folder / "w", config).new_stream("C")
    stream.import_nats_backup(folder / "C")
    assert ours(stream.opened, "C.a", "", headers) == theirs(nats, "C.a", "", headers)
    stored = [(one.headers, one.payload) for one in nats.survivors("C")]
    nats.delete("C")
    there = messages_of_stream(stream, folder / "export")
    assert [(one.headers, one.payload) for one in there] == stored


def messages_of_stream(stream: Any, path: Path) -> list[Message]:
    stream.export_nats_backup(path)
    return [one for batch in read_backup(path).batches() for one in messages_of(batch)]


def test_patterns_of_schedules_are_the_servers(nats: Nats) -> None:
    config = {"name": "P", "subjects": ["P.*"], "allow_msg_schedules": True}
    nats.request("STREAM.CREATE.P", config)
    for pattern in (*TAKEN, *REFUSED):
        given = {"Nats-Schedule": pattern, "Nats-Schedule-Target": "P.t"}
        ack = nats.publish_one("P.a", b"", given)
        code = ack.get("error", {}).get("err_code")
        assert code == (None if pattern in TAKEN else 10189), pattern
    nats.delete("P")
