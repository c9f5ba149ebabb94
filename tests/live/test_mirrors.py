"""Mirrors and streams with sources compared with a server's: the same messages in the same order."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core import headers
from retention.core.units import HOUR
from tests.support.nats_oracle import Message, Nats, server

pytestmark = pytest.mark.live

MESSAGES = 40
SETTLED_WITHIN = 5.0
ORIGIN = {
    "name": "O",
    "subjects": ["o.>"],
    "allow_msg_ttl": True,
    "allow_rollup_hdrs": True,
    "storage": "file",
}
TRANSFORMS = [{"src": "o.b.*", "dest": "p.{{wildcard(1)}}"}, {"src": "o.a", "dest": ""}]
MIRRORS: list[dict[str, Any]] = [
    {"mirror": {"name": "O"}},
    {"mirror": {"name": "O"}, "storage": "memory"},
    {"mirror": {"name": "O", "filter_subject": "o.b.>", "opt_start_seq": 7}},
    {"mirror": {"name": "O", "subject_transforms": TRANSFORMS}},
    {"mirror": {"name": "O"}, "subject_transform": {"src": "o.*", "dest": "t.{{wildcard(1)}}"}},
    {"mirror": {"name": "O"}, "max_msgs": 9, "discard": "new"},
    {"mirror": {"name": "O"}, "max_msg_size": 60},
    {"mirror": {"name": "O"}, "allow_rollup_hdrs": True},
]
SOURCES: list[dict[str, Any]] = [
    {"sources": [{"name": "O"}]},
    {"sources": [{"name": "O", "filter_subject": "o.b.*"}], "subject_delete_marker_ttl": 2 * HOUR},
    {
        "sources": [{"name": "O", "subject_transforms": TRANSFORMS}],
        "subject_transform": {"src": "p.>", "dest": "q.>"},
    },
    {"sources": [{"name": "O", "opt_start_seq": 11}], "storage": "memory"},
    {"sources": [{"name": "O"}], "duplicate_window": HOUR},
    {"sources": [{"name": "O"}], "max_bytes": 900, "discard": "new"},
    {
        "sources": [{"name": "O"}],
        "max_msgs": 12,
        "max_msgs_per_subject": 2,
        "discard": "new",
    },
    {"sources": [{"name": "O"}], "allow_rollup_hdrs": True},
    {"sources": [{"name": "O"}], "allow_rollup_hdrs": True, "max_msgs": 6, "discard": "new"},
    {
        "sources": [{"name": "O"}],
        "allow_rollup_hdrs": True,
        "max_bytes": 1000,
        "max_msgs_per_subject": 3,
        "discard": "new",
        "discard_new_per_subject": True,
    },
]


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


def laid(first_ns: int) -> list[Message]:
    """Messages with headers of every kind, repeated ids, unapplied rollups, and gaps."""
    chance = random.Random(20261121)
    messages = []
    for seq in sorted(chance.sample(range(1, 3 * MESSAGES), MESSAGES)):
        possible = {
            "A": "1",
            "Nats-TTL": chance.choice(["never", "1h", "90m", "10800"]),
            "Nats-Msg-Id": f"i{chance.randrange(4)}",
            "Nats-Expected-Last-Sequence": str(seq - 1),
            "nats-expected-x": "y",
            "Nats-Expected-Stream": "O",
            "Nats-Batch-Id": "b",
            "Z": "\u00e4",
            "Nats-Rollup": chance.choice(["sub", "sub", "SUB", "all"]),
        }
        named = [pair for pair in possible.items() if chance.random() < 0.25]
        subject = chance.choice(["o.a", "o.b.x", "o.b.y", "o.b.x.y", "o.c"])
        payload = b"x" * chance.randrange(12)
        messages.append(Message(seq, subject, first_ns + seq, headers.build(named), payload))
    return messages


def ours(folder: Path, configs: list[dict[str, Any]], backup: Path) -> Warehouse:
    path = folder / "retention.yaml"
    streams = [{**one, "num_replicas": 1} for one in (ORIGIN, *configs)]
    path.write_text(
        json.dumps({"warehouse": ".", "defaults": {"format": "parquet"}, "streams": streams}),
        encoding="utf-8",
    )
    warehouse = open_warehouse(path, engine="local")
    warehouse.stream("O").import_nats_backup(backup)
    return warehouse


def settled(nats: Nats, names: list[str]) -> None:
    """Wait until no stream grows any more."""
    until, before = time.monotonic() + SETTLED_WITHIN, None
    while time.monotonic() < until:
        now = [nats.info(name)["state"]["last_seq"] for name in names]
        if now == before and all(now):
            return
        before = now
        time.sleep(0.4)


def without_identity(block: bytes | None) -> bytes:
    """Remove the eight characters that identify a stream's incarnation, which differ between the two."""
    return re.sub(rb"(Nats-Stream-Source: [^\r]* )\w{8}\r\n", rb"\1########\r\n", block or b"")


def test_mirrors_and_sources_hold_what_a_servers_do(nats: Nats, tmp_path: Path) -> None:
    nats.restore("O", ORIGIN, laid(tmp_path.stat().st_mtime_ns))
    nats.snapshot("O", tmp_path / "O.arc")
    configs = [{"name": f"T{number}", **one} for number, one in enumerate([*MIRRORS, *SOURCES])]
    names = [one["name"] for one in configs]
    for one in configs:
        nats.request(f"STREAM.CREATE.{one['name']}", {"storage": "file", **one})
    settled(nats, names)
    warehouse = ours(tmp_path, configs, tmp_path / "O.arc")
    warehouse.mirror()
    # The server applies limits per subject on arrival, here a pass does.
    warehouse.apply(one["name"] for one in configs if "max_msgs_per_subject" in one)
    held = 0
    for one in configs:
        name = one["name"]
        theirs = [
            (m.seq, m.subject, without_identity(m.headers), m.payload) for m in nats.survivors(name)
        ]
        rows = [row for t in warehouse.stream(name).messages() for row in t.to_pylist()]
        mine = [
            (row["seq"], row["subject"], without_identity(row["headers"]), row["payload"])
            for row in rows
        ]
        assert mine == theirs, one
        state = nats.info(name)["state"]
        assert sum(row["size"] for row in rows) == state["bytes"], one
        if "mirror" in one:
            assert [row["ts_ns"] for row in rows] == [m.ts_ns for m in nats.survivors(name)]
        held += len(mine)
    assert held > len(configs) * 5
