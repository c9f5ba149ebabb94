"""Logs of Iggy in its servers' byte format, and directories of real servers."""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_64_intdigest

ORIGINALS = Path(__file__).parents[1] / "conformance" / "iggy-logs"
NAMES = ("h-expiry", "v8-hole")


@dataclass(frozen=True)
class Message:
    """A message; times in microseconds."""

    offset: int
    payload: bytes = b"payload"
    headers: bytes = b""
    id: int = 7
    timestamp: int = 1_800_000_000_000_000
    origin: int = 1_700_000_000_000_000


def message_08(message: Message) -> bytes:
    fields = struct.pack(
        "<16sQQQIIQ",
        message.id.to_bytes(16, "little"),
        message.offset,
        message.timestamp,
        message.origin,
        len(message.headers),
        len(message.payload),
        0,
    )
    return checked(fields + message.payload + message.headers)


def log_08(messages: Iterable[Message]) -> bytes:
    return b"".join(map(message_08, messages))


def batch_09(messages: Sequence[Message], partition: int = 0) -> bytes:
    """The messages as one batch, with the broker's time of the first message."""
    base = messages[0].offset
    origin = min(message.origin for message in messages)
    frames = [
        checked(
            struct.pack(
                "<16sIIIIQ",
                message.id.to_bytes(16, "little"),
                message.offset - base,
                message.origin - origin,
                len(message.headers),
                len(message.payload),
                0,
            )
            + message.payload
            + message.headers
        )
        for message in messages
    ]
    return batch_of(frames, (partition, base, messages[0].timestamp, origin))


def batch_of(frames: Sequence[bytes], fields: tuple[int, int, int, int]) -> bytes:
    """A batch of frames; `fields` are partition, base offset, base time and time of origin."""
    head = struct.pack("<QQQQQ", *fields, 256 + sum(map(len, frames)))
    count = struct.pack("<I", len(frames))
    checksum = xxh3_64_intdigest(head + count + b"".join(frame[:8] for frame in frames))
    header = head + struct.pack("<Q", checksum) + count
    return header.ljust(256, b"\0") + b"".join(frames)


def log_09(messages: Sequence[Message], batch: int = 3, partition: int = 0) -> bytes:
    """Batches of `batch` messages each."""
    starts = range(0, len(messages), batch)
    return b"".join(batch_09(messages[at : at + batch], partition) for at in starts)


def checked(content: bytes) -> bytes:
    """A message's content, prefixed by its checksum."""
    return struct.pack("<Q", xxh3_64_intdigest(content)) + content


def written(directory: Path, partitions: dict[str, dict[int, bytes]]) -> Path:
    """Write a topic's directory: name of a partition → number of a log → its bytes."""
    for name, logs in partitions.items():
        folder = directory / "partitions" / name
        folder.mkdir(parents=True)
        for number, content in logs.items():
            (folder / f"{number:020}.log").write_bytes(content)
    return directory


def original(name: str, moment: str, folder: Path) -> Path:
    """The unpacked topic directory of a real server, `before` or `after` a pass."""
    with tarfile.open(ORIGINALS / name / f"{moment}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / moment / "streams" / "0" / "topics" / "0"
