"""Deliveries are told from everything else on a connection, however its bytes are cut."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from retention.errors import Terminated, VerificationError
from retention.nats import places
from retention.nats.client import LibraryClient
from retention.nats.collector import Collector
from retention.nats.deliveries import Deliveries, decode, pending_after
from retention.nats.frames import FrameParser

SID = 7
REPLIES = {
    "plain": "S.c.1.{seq}.{number}.{ts}.{pending}",
    "domain": "hub.HASH.S.c.1.{seq}.{number}.{ts}.{pending}",
    "domain and token": "_.HASH.S.c.1.{seq}.{number}.{ts}.{pending}.tok",
}
BETWEEN = [
    b"+OK\r\n",
    b"MSG other 3 5\r\nhello\r\n",
    b"MSG other 77 reply 2\r\n\r\n\r\n",
    b"-ERR 'Permissions Violation for Publish to \"$JS.API.X\"'\r\n",
]
STATUS = b"NATS/1.0 409 Batch Completed\r\n\r\n"


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    made, seq = [], 0
    for _ in range(count):
        seq += chance.choice((1, 1, 9, 10**12))
        made.append(
            {
                "seq": seq,
                "subject": "s." + "é" * chance.randrange(12),
                "ts_ns": chance.randrange(-5, 2**62),
                "headers": chance.choice(
                    (None, b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\nA: b\r\n\r\n")
                ),
                "payload": chance.randbytes(chance.choice((0, 1, 11, 12, 13, 300))),
            }
        )
    return made


def frame(row: dict[str, Any], reply: str, sid: int = SID) -> bytes:
    headers, payload = row["headers"], row["payload"]
    begin = f"{row['subject']} {sid} {reply}".encode()
    if headers is None:
        return b"MSG %s %d\r\n%s\r\n" % (begin, len(payload), payload)
    sizes = len(headers), len(headers) + len(payload)
    return b"HMSG %s %d %d\r\n%s%s\r\n" % (begin, *sizes, headers, payload)


def wire(made: list[dict[str, Any]], form: str, chance: random.Random) -> bytes:
    parts = []
    for number, row in enumerate(made, 1):
        pending = len(made) - number
        reply = REPLIES[form].format(
            seq=row["seq"], number=number, ts=row["ts_ns"], pending=pending
        )
        parts.append(frame(row, "$JS.ACK." + reply))
        if chance.random() < 0.2:
            parts.append(chance.choice(BETWEEN))
    sizes = len(STATUS), len(STATUS)
    return b"".join(parts) + b"HMSG _INBOX.x.4 7 %d %d\r\n%s\r\n" % (*sizes, STATUS)


def parser(errors: list[str]) -> tuple[FrameParser, Collector]:
    frames = LibraryClient(errors.append, needs_tls=False, has_certificate=False).frames
    return frames, frames.collect(SID, lambda: None)


async def feed(frames: FrameParser, data: bytes, chance: random.Random) -> None:
    while data:
        size = chance.choice((1, 2, 7, 100, 5000))
        await frames.parse(data[:size])
        data = data[size:]


@pytest.mark.parametrize("form", REPLIES)
@pytest.mark.parametrize("seed", range(4))
def test_deliveries_cut_anywhere_are_decoded_in_order(form: str, seed: int) -> None:
    chance, errors, made = random.Random(seed), list[str](), rows(60, seed)

    async def run() -> tuple[list[Deliveries], Collector, int]:
        frames, here = parser(errors)
        await feed(frames, wire(made, form, chance), chance)
        last = pending_after(frames.last_reply())
        assert last == (made[-1]["seq"], 0)
        batches = []
        while here.count:
            batches.append(decode(frames.take(min(here.count, chance.randrange(1, 25)))))
        return batches, here, frames.num_bytes

    batches, here, left = asyncio.run(run())
    assert [row for batch in batches for row in batch.messages.to_pylist()] == made
    assert [n for batch in batches for n in batch.consumer_seqs.tolist()] == list(range(1, 61))
    assert [batch.pending for batch in batches][-1] == 0
    assert [(status.subject, status.before) for status in here.statuses] == [("_INBOX.x.4", 60)]
    assert all("$JS.API.X" in text for text in errors)
    assert left < 200


def test_a_lost_connection_leaves_nothing_of_an_unfinished_frame() -> None:
    async def run() -> None:
        frames, here = parser([])
        row = rows(1, 1)[0]
        whole = frame(row, "$JS.ACK.S.c.1.1.1.1.0")
        await frames.parse(whole + whole[:-3])
        frames.reset()
        assert here.count == 0
        await frames.parse(whole)
        assert here.count == 1

    asyncio.run(run())


def test_a_search_that_a_signal_interrupted_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(view: object, ends: object) -> None:
        raise Terminated

    monkeypatch.setattr(places, "_sizes", interrupted)

    async def run() -> None:
        frames, _ = parser([])
        delivery = frame(rows(1, 1)[0], "$JS.ACK.S.c.1.1.1.1.0")
        await frames.parse(delivery)
        with pytest.raises(Terminated) as held:
            await frames.parse(delivery * 1_000)
        # The traceback holds the view of the bytes.
        assert held.tb is not None
        frames.stop()
        assert frames.num_bytes == 0

    asyncio.run(run())


def test_a_reply_of_an_unknown_form_is_refused() -> None:
    async def run(*replies: str) -> None:
        frames, here = parser([])
        for reply in replies:
            await frames.parse(frame(rows(1, 1)[0], "$JS.ACK." + reply))
        decode(frames.take(here.count))

    with pytest.raises(VerificationError, match="has 4 tokens after"):
        asyncio.run(run("1.2.3.4"))
    with pytest.raises(VerificationError, match="different forms"):
        asyncio.run(run("S.c.1.1.1.1.0", "hub.H.S.c.1.2.2.1.0"))


def test_a_message_with_another_reply_is_noted() -> None:
    async def run() -> str | None:
        frames, here = parser([])
        await frames.parse(frame(rows(1, 1)[0], "_R_.abc"))
        return here.strange_reply

    assert asyncio.run(run()) == "_R_.abc"


def test_a_subject_that_is_no_text_is_refused() -> None:
    async def run() -> None:
        frames, _ = parser([])
        await frames.parse(b"MSG a.\xff 7 $JS.ACK.S.c.1.1.1.1.0 1\r\nx\r\n")
        decode(frames.take(1))

    with pytest.raises(VerificationError, match="no UTF-8"):
        asyncio.run(run())
