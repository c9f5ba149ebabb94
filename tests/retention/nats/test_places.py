"""Places of deliveries are the same whether small frames are found many at a time or one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from retention.nats import places
from retention.nats.places import AFTER, END, MARK, START, find_deliveries

MARKER = b" 7 $JS.ACK."
REPLY = b"S.c.1.%d.%d.1795892800239013113.0"


def frame(seq: int, payload: bytes, *, headers: bytes = b"", subject: bytes = b"$KV.b.k") -> bytes:
    reply = REPLY % (seq, seq)
    if headers:
        sizes = len(headers), len(headers) + len(payload)
        return b"HMSG %s%s%s %d %d\r\n%s%s\r\n" % (subject, MARKER, reply, *sizes, headers, payload)
    return b"MSG %s%s%s %d\r\n%s\r\n" % (subject, MARKER, reply, len(payload), payload)


def like_frames(chance: random.Random) -> bytes:
    """A payload with the line ends, sizes and markers of frames in it."""
    pieces = [
        b"\r\n",
        b" 12\r\n",
        b"\r",
        b"MSG a 7 $JS.ACK.x 3\r\n",
        MARKER,
        b"99999999999\r\n",
        b" ",
    ]
    return b"".join(chance.choice(pieces) for _ in range(chance.randrange(12)))


def many(chance: random.Random, count: int = 600) -> list[bytes]:
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    sizes = [0, 1, 90, 300] * 20 + [3_000, 20_000]
    return [
        frame(
            seq,
            like_frames(chance) + chance.randbytes(chance.choice(sizes)),
            headers=chance.choice((b"", block)),
        )
        for seq in range(1, count + 1)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_places_are_those_of_the_frames(seed: int) -> None:
    chance = random.Random(seed)
    frames = many(chance)
    stop = chance.choice((b"PING\r\n", b"+OK\r\n", b"MSG other 77 5\r\nhello\r\n", frames[0][:-1]))
    before = chance.randbytes(chance.randrange(50))
    data = bytearray(before + b"".join(frames) + stop + b"".join(frames[:300]))
    if stop == frames[0][:-1]:
        del data[len(before) + sum(map(len, frames)) + len(stop) :]
    found = find_deliveries(data, len(before), MARKER)
    ends = len(before) + np.cumsum([len(each) for each in frames])
    assert found[:, AFTER].tolist() == ends.tolist()
    assert found[:, START].tolist() == [len(before), *ends[:-1]]
    for place, each in zip(found.tolist(), frames, strict=True):
        line = each.split(b"\r\n", 1)[0]
        assert bytes(data[place[START] : place[END]]) == line
        assert place[MARK] - place[START] == line.index(MARKER)


def test_small_frames_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(b"".join(frame(seq, b"x" * 50) for seq in range(1, 2_001)))
    searched = []
    small = places._small

    def counted(given: bytearray, at: int, marker: bytes) -> np.ndarray:
        searched.append(at)
        return small(given, at, marker)

    monkeypatch.setattr(places, "_small", counted)
    assert len(find_deliveries(data, 0, MARKER)) == 2_000
    assert searched == [0]
