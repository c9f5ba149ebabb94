"""A topic of a recorded Iggy server: it answers as that server did, and cuts its batches as that server does."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from retention.iggy import wire
from retention.iggy.topic import RemoteTopic

FIXTURE = Path(__file__).parents[1] / "fixtures" / "iggy-server" / "stages.json.gz"
STREAM, TOPIC = "shop", "orders ü"
_POLL = struct.Struct("<IBQIB")
_PREFIX = struct.Struct("<IQI")
_HEADER_BYTES, _FRAME_BYTES = 256, 48


def stages() -> dict[str, dict[str, Any]]:
    """Name → the answers of one stage."""
    recorded: dict[str, dict[str, Any]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))[
        "stages"
    ]
    return recorded


def key_of(code: int, body: bytes) -> str:
    return f"{code} {body.hex()}"


@dataclass
class RecordedServer:
    """The recorded answers; `stage` says which of them hold now."""

    stage: str = "first"
    server: str = "recorded:8090"
    recorded: dict[str, dict[str, Any]] = field(default_factory=stages)
    requests: list[int] = field(default_factory=list)
    most_polled: int = 10**9

    def request(self, code: int, body: bytes) -> bytes:
        self.requests.append(code)
        answers = self.recorded[self.stage]
        if code == wire.POLL_MESSAGES:
            partition, _, offset, count, _ = _POLL.unpack(body[-_POLL.size :])
            log = base64.b64decode(answers["logs"][str(partition)])
            return cut(log, partition, offset, min(count, self.most_polled))
        return base64.b64decode(answers["answers"][key_of(code, body)])

    @property
    def topic(self) -> RemoteTopic:
        return RemoteTopic(self, STREAM, TOPIC)


def cut(answer: bytes, partition: int, offset: int, count: int) -> bytes:
    """The answer to a poll, of the answer to a poll of everything."""
    _, last, _ = _PREFIX.unpack_from(answer)
    content, taken = b"", 0
    for header, frames in _batches(answer[_PREFIX.size :]):
        base = struct.unpack_from("<Q", header, 8)[0]
        wanted = [
            frame for frame in frames if base + struct.unpack_from("<I", frame, 24)[0] >= offset
        ][: count - taken]
        if wanted:
            content += _batch(header, wanted)
            taken += len(wanted)
    return _PREFIX.pack(partition, last, taken) + content


def _batches(content: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    at = 0
    while at < len(content):
        length = struct.unpack_from("<Q", content, at + 32)[0]
        header, end = content[at : at + _HEADER_BYTES], at + length
        frames, at = [], at + _HEADER_BYTES
        while at < end:
            size = _FRAME_BYTES + sum(struct.unpack_from("<II", content, at + 32))
            frames.append(content[at : at + size])
            at += size
        yield header, frames


def _batch(header: bytes, frames: list[bytes]) -> bytes:
    """A batch of some of its messages, with the checksum that the server computes for them."""
    fields = bytearray(header)
    struct.pack_into("<Q", fields, 32, _HEADER_BYTES + sum(map(len, frames)))
    struct.pack_into("<I", fields, 48, len(frames))
    checked = bytes(fields[:40] + fields[48:52]) + b"".join(frame[:8] for frame in frames)
    struct.pack_into("<Q", fields, 40, xxh3_64_intdigest(checked))
    return bytes(fields) + b"".join(frames)
