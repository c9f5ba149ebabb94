"""A real server's pull consumer with nats-py, and ours: the same work, the same deliveries, the same info."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.api.warehouse import open_warehouse
from retention.delivery.messages import Message as Ours
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with
from tests.support.nats_oracle import Message, Nats, server

pytestmark = [pytest.mark.live, pytest.mark.slow]

MESSAGES = 12
ACK_WAIT_S, DELAY_S = 4, 10
CONSUMER = {
    "durable_name": "billing",
    "ack_policy": "explicit",
    "ack_wait": ACK_WAIT_S * SECOND,
    "max_deliver": 2,
}
SCRIPT: list[tuple[str, Any]] = [
    ("fetch", 6),
    ("ack", [3, 1]),
    ("term", [4]),
    ("delay", [2]),
    ("nak", [5]),
    ("fetch", 1),
    ("pass", ACK_WAIT_S + 0.5),
    ("fetch", 2),
    ("pass", DELAY_S - ACK_WAIT_S),
    ("fetch", 3),
    ("ack", [6, 7]),
    ("pass", ACK_WAIT_S + 0.5),
    ("fetch", 2),
    ("ack", [8, 9, 5]),
    ("term", [2]),
    ("fetch", 2),
    ("ack", [10, 11]),
]
"""An act with its messages or their number; `pass` advances seconds, `delay` is a nak with a delay."""


class Server:
    """The script on a real server, by nats-py."""

    def __init__(self, nats: Nats, policy: str) -> None:
        messages = [Message(seq, "orders.x", START, payload=b"x") for seq in range(1, MESSAGES + 1)]
        nats.restore("ORDERS", {"subjects": ["orders.>"]}, messages)
        config = CONSUMER | {"ack_policy": policy}
        asked = {"stream_name": "ORDERS", "config": config}
        nats.request("CONSUMER.CREATE.ORDERS.billing", asked)
        self._nats = nats
        jetstream = nats._client.jetstream()
        self._asking = nats._run(jetstream.pull_subscribe_bind("billing", stream="ORDERS"))
        self._held: dict[int, Any] = {}

    def do(self, what: str, detail: Any) -> list[tuple[int, int]]:
        return self._nats._run(self._do(what, detail))

    async def _do(self, what: str, detail: Any) -> list[tuple[int, int]]:
        if what == "pass":
            await asyncio.sleep(detail)
            return []
        if what == "fetch":
            found = await self._asking.fetch(detail, timeout=3)
            given = [(one.metadata.sequence.stream, one.metadata.num_delivered) for one in found]
            self._held |= {seq: one for (seq, _), one in zip(given, found, strict=True)}
            return given
        for seq in detail:
            await self._answer(what, self._held[seq])
        await asyncio.sleep(0.2)
        return []

    async def _answer(self, what: str, message: Any) -> None:
        message._ackd = False
        match what:
            case "ack":
                await message.ack_sync(timeout=10)
            case "term":
                await message.term()
            case "delay":
                await message.nak(delay=DELAY_S)
            case _:
                await message.nak()

    def info(self) -> dict[str, Any]:
        said = self._nats.request("CONSUMER.INFO.ORDERS.billing", {})
        positions = {
            name: {count: said[name][count] for count in ("consumer_seq", "stream_seq")}
            for name in ("delivered", "ack_floor")
        }
        counts = ("num_ack_pending", "num_redelivered", "num_pending")
        return positions | {name: said[name] for name in counts}


class Batches:
    """The same script on our consumer, with a manual clock."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.policy, self.given_up = policy, False
        config = CONSUMER | {"ack_policy": policy}
        warehouse_with(folder, "parquet", START, consumers=[config])
        self._now = START
        warehouse = open_warehouse(
            folder / "retention.yaml", engine="local", clock=lambda: self._now
        )
        self._stream: Stream = warehouse.stream("ORDERS")
        laid = [Laid(seq, "orders.x", START, b"x") for seq in range(1, MESSAGES + 1)]
        lay(self._stream.opened, [File(1, laid)])
        self._consumer = self._stream.consumer("billing")
        self._held: dict[int, Ours] = {}

    def do(self, what: str, detail: Any) -> list[tuple[int, int]]:
        if what == "pass":
            self._now += int(detail * SECOND)
        elif what == "fetch":
            found = list(self._consumer.fetch(detail))
            state = self._consumer.state
            self.given_up |= not set(state.redelivered["seq"].to_pylist()) <= set(
                state.pending["seq"].to_pylist()
            )
            self._held |= {one.seq: one for one in found}
            return [(one.seq, one.deliveries) for one in found]
        else:
            for seq in detail:
                self._answer(what, self._held[seq])
        return []

    def _answer(self, what: str, message: Ours) -> None:
        match what:
            case "ack":
                message.ack()
            case "term":
                message.term()
            case "delay":
                message.nak(f"{DELAY_S}s")
            case _:
                message.nak()

    def info(self) -> dict[str, Any]:
        said = self._stream.consumers.info("billing").as_json()
        names = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")
        return {name: said[name] for name in names}


def compared(ours: Batches, theirs: Server) -> list[str]:
    """The differences; a server 2.15.1 keeps its floor at abandoned messages until nothing is pending.

    With `ack_policy: all` it also ignores that later acks cover abandoned messages.
    """
    mine, its = ours.info(), theirs.info()
    differ = {name for name in mine if mine[name] != its[name]}
    if ours.given_up and mine["num_ack_pending"]:
        assert its["ack_floor"]["stream_seq"] <= mine["ack_floor"]["stream_seq"]
        differ -= {"ack_floor"}
    if ours.given_up and ours.policy == "all":
        assert mine["num_redelivered"] <= its["num_redelivered"]
        differ -= {"num_redelivered"}
    return sorted(f"{name}: {mine[name]}, {its[name]}" for name in differ)


@pytest.fixture
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


@pytest.mark.parametrize("policy", ["explicit", "all"])
def test_the_same_work_gets_the_same_messages_and_leaves_the_same_state(
    nats: Nats, tmp_path: Path, policy: str
) -> None:
    theirs, ours = Server(nats, policy), Batches(tmp_path, policy)
    began = time.monotonic()
    for number, (what, detail) in enumerate(SCRIPT):
        expected = theirs.do(what, detail)
        assert ours.do(what, detail) == expected, (number, what, detail)
        if what != "pass":
            assert compared(ours, theirs) == [], (number, what, detail)
    passed = sum(detail for what, detail in SCRIPT if what == "pass")
    assert time.monotonic() - began < passed + ACK_WAIT_S, (
        "this machine was too slow for the script"
    )
