"""Fields of a consumer's configuration compared with a real server: start, reports, and omissions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.api.warehouse import open_warehouse
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with
from tests.support.nats_oracle import Message, Nats, server

pytestmark = [pytest.mark.live, pytest.mark.slow]

SUBJECTS = ["orders.a", "orders.b", "refunds.c", "orders.a", "orders.d", "orders.b", "orders.e"]
BLOCK = b"NATS/1.0\r\nColour: red\r\n\r\n"


@pytest.fixture
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


class Beside:
    """The same consumer of the same stream, on a server and here."""

    def __init__(self, nats: Nats, folder: Path, **fields: Any) -> None:
        config = {"durable_name": "billing", "ack_policy": "explicit", **fields}
        subjects = ["orders.>", "refunds.>"]
        messages = [
            Message(seq, subject, START, BLOCK if seq % 2 else b"", b"x" * seq)
            for seq, subject in enumerate(SUBJECTS, start=1)
        ]
        nats.restore("ORDERS", {"subjects": subjects}, messages)
        nats.request("CONSUMER.CREATE.ORDERS.billing", {"stream_name": "ORDERS", "config": config})
        self.nats = nats
        jetstream = nats._client.jetstream()
        self._asking = nats._run(jetstream.pull_subscribe_bind("billing", stream="ORDERS"))
        warehouse_with(folder, "parquet", START, consumers=[config], subjects=subjects)
        path = folder / "retention.yaml"
        warehouse = open_warehouse(path, engine="local", clock=lambda: START + SECOND)
        self.stream: Stream = warehouse.stream("ORDERS")
        laid = [
            Laid(one.seq, one.subject, START, one.payload, headers=one.headers or None)
            for one in messages
        ]
        lay(self.stream.opened, [File(1, laid)])
        self.ours = self.stream.consumer("billing")

    def publish(self, *subjects: str) -> None:
        self.nats.publish((subject, b"late", None) for subject in subjects)
        lines = [json.dumps({"subject": subject, "data": "late"}) for subject in subjects]
        self.stream.publish(lines)

    def fetch(self, count: int) -> list[Any]:
        found: list[Any] = self.nats._run(self._asking.fetch(count, timeout=5))
        return found

    def num_pending(self) -> tuple[int, int]:
        info = self.nats.request("CONSUMER.INFO.ORDERS.billing", {})
        return info["num_pending"], self.stream.consumers.info("billing").num_pending


@pytest.mark.parametrize("filters", [["orders.>"], ["orders.*", "refunds.c"], ["orders.f"]])
def test_of_each_subject_only_the_last_is_delivered_and_then_all_that_is_new(
    nats: Nats, tmp_path: Path, filters: list[str]
) -> None:
    start = {"deliver_policy": "last_per_subject", "filter_subjects": filters}
    beside = Beside(nats, tmp_path, **start)
    told = [beside.num_pending()]
    beside.publish("orders.a", "refunds.x", "orders.f", "orders.f")
    told.append(beside.num_pending())
    while count := min(told[-1][1], 3):
        theirs = [one.metadata.sequence.stream for one in beside.fetch(count)]
        assert beside.ours.fetch(count).seqs.tolist() == theirs
        told.append(beside.num_pending())
    assert [theirs for theirs, _ in told] == [ours for _, ours in told]


def test_acks_are_reported_as_by_a_server(nats: Nats, tmp_path: Path) -> None:
    beside = Beside(nats, tmp_path, sample_freq="100%", ack_wait=SECOND)
    listening = nats._run(nats._client.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.>"))
    for one in beside.fetch(2):
        nats._run(one.ack_sync(timeout=10))
    lines = [json.loads(line) for line in beside.ours.fetch(2).ack().advisories()]
    for line in lines:
        theirs = nats._run(listening.next_msg(timeout=10))
        event, expected = json.loads(line["data"]), json.loads(theirs.data)
        assert line["subject"] == theirs.subject
        assert event.keys() == expected.keys()
        for name in event.keys() - {"id", "timestamp", "ack_time"}:
            assert event[name] == expected[name], name


def test_headers_alone_say_how_long_a_payload_is(nats: Nats, tmp_path: Path) -> None:
    beside = Beside(nats, tmp_path, headers_only=True)
    theirs, ours = beside.fetch(2), list(beside.ours.fetch(2))
    assert [one.payload for one in ours] == [one.data for one in theirs] == [b"", b""]
    for mine, its in zip(ours, theirs, strict=True):
        lines = mine.headers.decode().split("\r\n")[1:-2]
        assert dict(line.split(": ") for line in lines) == its.headers
