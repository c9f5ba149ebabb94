"""The needle file of an unfinished erasure: its request and its needles, encrypted under a key that its record has."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from retention.erasure.needles import KINDS, Needles
from retention.errors import DamagedError
from retention.storage import files, local
from retention.storage.crash_points import Step, reached

KEY_BYTES = 32
_MAGIC = b"RETNDL01"
_FRAME_BYTES = 1 << 20
_NONCE_BYTES = 12
_FRAME = struct.Struct("<I")
_ROWS = 1 << 14
_SCHEMA = pa.schema(
    [
        pa.field("string", pa.large_binary(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("left", pa.bool_(), nullable=False),
    ]
)


@dataclass(frozen=True)
class NeedleFile:
    """The content of the file in clear; outside the encrypted file it exists in memory alone."""

    request: Mapping[str, Any]
    """The subjects and sequences to erase, as JSON can write them."""
    reason: str
    needles: Needles = field(compare=False)
    left: Needles | None = field(default=None, compare=False)
    """The needles that no message or row left had when they were last compared; None: they were never."""
    left_at: int = -1
    """The version of the table at which that was so."""


def new_key() -> bytes:
    """A key for one needle file."""
    return os.urandom(KEY_BYTES)


def write_needles(location: str, key: bytes, content: NeedleFile) -> None:
    """Write a needle file, replacing any there; durable when this returns."""
    with files.create(location) as sink:
        sink.write(_MAGIC)
        for frame in _encrypted(key, _framed(_serialized(content))):
            sink.write(_FRAME.pack(len(frame)) + frame)
    reached(Step.NEEDLES_WRITTEN)


def read_needles(location: str, key: bytes) -> NeedleFile:
    """The content of a needle file.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedError: the key is not that of the file, or the file is damaged.
    """
    with files.reading(location) as source:
        try:
            return _parsed(b"".join(_decrypted(key, source)))
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DamagedError(
                f"{location}: the needles of an erasure cannot be decrypted: the file is damaged, or the key in the "
                "erasure's record is not that of the file; restore both from one copy of the warehouse, or delete the "
                "record of the same name beside it and erase again"
            ) from error


def destroy_needles(location: str) -> None:
    """Overwrite a needle file with zeros and delete it, durably; a missing one is ignored."""
    length = files.length(location)
    if length is None:
        return
    if files.is_remote(location):
        files.replace(location, bytes(min(length, _FRAME_BYTES)))
    else:
        local.overwrite(location, length)
    reached(Step.NEEDLES_OVERWRITTEN)
    files.delete([location])
    if not files.is_remote(location):
        files.sync_directory(location.rpartition("/")[0])
    reached(Step.NEEDLES_DELETED)


def _serialized(content: NeedleFile) -> Iterator[bytes]:
    """A line of JSON, then an Arrow stream."""
    needles, left = content.needles, content.left
    head = {
        "request": content.request,
        "reason": content.reason,
        "too_short": needles.too_short,
        "shared": needles.shared,
        "left_shared": None if left is None else left.shared,
        "left_at": content.left_at,
        "kinds": KINDS,
    }
    yield json.dumps(head).encode() + b"\n"
    is_left = np.zeros(len(needles), bool) if left is None else needles.has_any_of(left)
    table = pa.table([needles.strings, needles.kinds, needles.values, is_left], schema=_SCHEMA)
    for batch in (None, *table.to_batches(max_chunksize=_ROWS)):
        yield bytes(_SCHEMA.serialize() if batch is None else batch.serialize())


def _parsed(content: bytes) -> NeedleFile:
    line, _, rest = content.partition(b"\n")
    head = json.loads(line)
    with pa.ipc.open_stream(rest) as reader:
        table = reader.read_all().combine_chunks()
    numbers = np.array([KINDS.index(kind) for kind in head["kinds"]], np.uint8)
    needles = Needles(
        table["string"].combine_chunks(),
        numbers[table["kind"].to_numpy()],
        table["value"].to_numpy(),
        head["too_short"],
        head["shared"],
    )
    shared = head["left_shared"]
    left = None if shared is None else needles.chosen(table["left"].to_numpy(), shared)
    return NeedleFile(head["request"], head["reason"], needles, left, head["left_at"])


def _framed(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The concatenated pieces in frames of equal size, each with whether it is the last."""
    pending = bytearray()
    for piece in pieces:
        pending += piece
        while len(pending) > _FRAME_BYTES:
            yield bytes(pending[:_FRAME_BYTES]), False
            del pending[:_FRAME_BYTES]
    yield bytes(pending), True


def _encrypted(key: bytes, frames: Iterable[tuple[bytes, bool]]) -> Iterator[bytes]:
    """Nonce, ciphertext and tag of each frame."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    for number, (frame, is_last) in enumerate(frames):
        nonce = os.urandom(_NONCE_BYTES)
        yield nonce + cipher.encrypt(nonce, frame, _place(number, is_last=is_last))


def _decrypted(key: bytes, source: BinaryIO) -> Iterator[bytes]:
    """The frames in clear, up to the last.

    Raises:
        ValueError: a frame is damaged or missing, something follows the last, or the key is another.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    if source.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is no needle file")
    number, frame = 0, _next_frame(source)
    while frame:
        following = _next_frame(source)
        nonce, content = frame[:_NONCE_BYTES], frame[_NONCE_BYTES:]
        try:
            yield cipher.decrypt(nonce, content, _place(number, is_last=not following))
        except InvalidTag as error:
            raise ValueError(f"frame {number} is damaged") from error
        number, frame = number + 1, following
    if not number:
        raise ValueError("it has no frame")


def _next_frame(source: BinaryIO) -> bytes:
    """The next frame, empty at the end of the file."""
    header = source.read(_FRAME.size)
    if not header:
        return b""
    (length,) = _FRAME.unpack(header.ljust(_FRAME.size, b"\0"))
    frame = source.read(min(length, 2 * _FRAME_BYTES))
    if len(header) < _FRAME.size or len(frame) != length or length <= _NONCE_BYTES:
        raise ValueError("it ends within a frame")
    return frame


def _place(number: int, *, is_last: bool) -> bytes:
    """The authenticated place of a frame: none can be moved, left out or appended."""
    return _MAGIC + struct.pack("<Q?", number, is_last)
