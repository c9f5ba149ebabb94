from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.context.context import OpenedStream
from retention.errors import RetentionError
from retention.history.runs import history_of
from retention.ingest.publish import publish
from tests.support.nats_oracle import Nats, server
from tests.support.plain_store import at, configured, opened_stream, store_of

pytestmark = pytest.mark.live
STREAMS, MESSAGES = 25, 40


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


def a_config(chance: random.Random) -> dict[str, Any]:
    per_subject = chance.choice([-1, 1, 2])
    return {
        "storage": chance.choice(["file", "memory"]),
        "discard": "new",
        "max_msgs": chance.choice([-1, 4, 8]),
        "max_bytes": chance.choice([-1, 300, 700]),
        "max_msgs_per_subject": per_subject,
        "discard_new_per_subject": per_subject > 0 and chance.random() < 0.3,
        "max_msg_size": chance.choice([-1, 60]),
        "allow_msg_ttl": chance.random() < 0.5,
        "allow_rollup_hdrs": chance.random() < 0.5,
    }


def some_headers(chance: random.Random, name: str, *, roll_ups: bool) -> dict[str, str]:
    """Random headers that affect a publish.

    With rollups there are no ids, because the server remembers ids of removed messages until its
    restart.
    """
    number = str(chance.randrange(8))
    possible = {
        "Nats-Msg-Id": f"id{chance.randrange(12)}",
        "Nats-TTL": chance.choice(["never", "1h", "500", "0", "00", "soon", "0.5s"]),
        "Nats-Expected-Stream": chance.choice([name, name, "OTHER"]),
        "Nats-Expected-Last-Sequence": number,
        "Nats-Expected-Last-Subject-Sequence": number,
        "Nats-Expected-Last-Subject-Sequence-Subject": f"{name}.{chance.choice(['a', '*', 'none'])}",
        "Nats-Expected-Last-Msg-Id": f"id{chance.randrange(12)}",
        "Nats-Rollup": chance.choice(["sub", "sub", "ALL", "some"]),
        "x": "y" * chance.randrange(30),
    }
    if roll_ups:
        del possible["Nats-Msg-Id"]
    return {key: value for key, value in possible.items() if chance.random() < 0.15}


def their_answer(nats: Nats, subject: str, payload: str, headers: dict[str, str]) -> Any:
    ack = nats.publish_one(subject, payload.encode(), headers or None)
    if "error" in ack:
        return ack["error"]["err_code"]
    return ack["seq"], ack.get("duplicate", False)


def our_answer(opened: OpenedStream, subject: str, payload: str, headers: dict[str, str]) -> Any:
    line = json.dumps({"subject": subject, "data": payload, "headers": headers})
    try:
        (ack,) = publish(opened, [line]).acks()
    except RetentionError as error:
        code = re.search(r"server error (\d+)", str(error))
        return int(code[1]) if code else str(error)
    return ack.seq, ack.duplicate


def test_every_answer_is_the_servers(nats: Nats, tmp_path: Path) -> None:
    chance = random.Random(20261121)
    given = compared = 0
    for number in range(STREAMS):
        name = f"S{number}"
        config = {"name": name, "subjects": [f"{name}.>"], **a_config(chance)}
        nats.request(f"STREAM.CREATE.{name}", {**config, "num_replicas": 1})
        opened = configured(opened_stream(tmp_path / name), **config)
        now = 1_700_000_000 * 10**9
        for _ in range(MESSAGES):
            now += 10**6
            message = (
                f"{name}.{chance.choice('abc')}",
                "z" * chance.randrange(40),
                some_headers(chance, name, roll_ups=config["allow_rollup_hdrs"]),
            )
            theirs = their_answer(nats, *message)
            ours = our_answer(at(opened, now), *message)
            assert ours == theirs, (config, message, store_of(opened).rows().num_rows)
            given += isinstance(theirs, tuple)
        if config["max_msgs_per_subject"] < 0 and not config["allow_msg_ttl"]:
            kept = [(message.seq, message.subject) for message in nats.survivors(name)]
            assert contents(opened) == kept
            compared += len(kept)
        nats.delete(name)
    assert given > STREAMS
    assert compared > 10


def contents(opened: OpenedStream) -> list[tuple[int, str]]:
    rows = store_of(opened).rows()
    return list(zip(rows["seq"].to_pylist(), rows["subject"].to_pylist(), strict=True))


def test_roll_ups_of_whole_batches_leave_what_the_server_leaves(nats: Nats, tmp_path: Path) -> None:
    chance = random.Random(6)
    transform = {"src": "R.x.*", "dest": "R.y.{{wildcard(1)}}"}
    config = {"name": "R", "subjects": ["R.>"], "allow_rollup_hdrs": True}
    config["subject_transform"] = transform
    nats.request("STREAM.CREATE.R", {**config, "num_replicas": 1})
    opened = configured(opened_stream(tmp_path, 1), **config, segment_size="300")
    for _ in range(30):
        batch = [
            (
                f"R.{chance.choice(['x', 'y'])}.{chance.choice('abcde')}",
                {"Nats-Rollup": chance.choice(["sub"] * 9 + ["all"])}
                if chance.random() < 0.15
                else {},
            )
            for _ in range(chance.randrange(1, 9))
        ]
        acks = [nats.publish_one(subject, b"x", headers)["seq"] for subject, headers in batch]
        lines = [
            json.dumps({"subject": subject, "data": "x", "headers": headers})
            for subject, headers in batch
        ]
        assert [ack.seq for ack in publish(opened, lines).acks()] == acks
        assert contents(opened) == [(one.seq, one.subject) for one in nats.survivors("R")]
    runs = list(history_of(opened.warehouse, "ORDERS").outcomes())
    assert sum(run.removed_messages for run in runs) > 30
    nats.delete("R")
