"""S2 and Snappy framed streams: checks and decodes chunks one at a time, and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import google_crc32c
import pyarrow as pa

from retention.errors import DamagedError
from retention.formats.s2 import block as s2_block

_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_IDENTIFIERS = (b"sNaPpY", b"S2sTwO")
_HEADER_BYTES = 4
_CHECKSUM_BYTES = 4
_COMPRESSED, _UNCOMPRESSED, _STREAM = 0x00, 0x01, 0xFF
_SKIPPABLE_FROM = 0x80
_WRITTEN_BLOCK_BYTES = 64 << 10
_MASK_DELTA = 0xA282EAD8
_UINT32 = 0xFFFFFFFF


def read_frames(file: BinaryIO) -> Iterator[bytes]:
    """Yield the decoded blocks of a stream in their order; one block, at most 4 MiB, is in memory at a time.

    Raises:
        DamagedError: the file is not such a stream or is truncated, a checksum differs, or a chunk cannot be decoded.
    """
    at = 0
    while header := file.read(_HEADER_BYTES):
        kind, length = header[0], int.from_bytes(header[1:], "little")
        body = file.read(length)
        if len(header) < _HEADER_BYTES or len(body) < length:
            raise _damaged(file, at, "the file ends within a chunk")
        if at == 0 and kind != _STREAM:
            raise _damaged(file, at, "the file is not an S2 or Snappy stream")
        if kind in (_COMPRESSED, _UNCOMPRESSED):
            yield _block(file, at, kind, body)
        elif kind == _STREAM and body not in _IDENTIFIERS:
            raise _damaged(file, at, f"stream identifier {body!r} is neither S2 nor Snappy")
        elif kind < _SKIPPABLE_FROM:
            raise _damaged(file, at, f"chunk type {kind:#04x} is unknown and must not be skipped")
        at += _HEADER_BYTES + length


def write_frames(file: BinaryIO, pieces: Iterable[bytes]) -> None:
    """Write the concatenated pieces as a Snappy framed stream; S2 readers can read it, too."""
    codec = pa.Codec("snappy")
    file.write(_IDENTIFIER)
    for block in _blocks(pieces):
        packed = codec.compress(block, asbytes=True)
        kind, body = (_COMPRESSED, packed) if len(packed) < len(block) else (_UNCOMPRESSED, block)
        length = len(body) + _CHECKSUM_BYTES
        file.write(bytes((kind,)) + length.to_bytes(3, "little") + _checksum(block) + body)


def _block(file: BinaryIO, at: int, kind: int, body: bytes) -> bytes:
    checksum, data = body[:_CHECKSUM_BYTES], body[_CHECKSUM_BYTES:]
    if kind == _COMPRESSED:
        try:
            data = s2_block.decode(data)
        except ValueError as error:
            raise _damaged(file, at, f"a compressed chunk cannot be decoded ({error})") from error
    if _checksum(data) != checksum:
        raise _damaged(file, at, "the checksum of a chunk differs from its content")
    return data


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    pending = bytearray()
    for piece in pieces:
        pending += piece
        whole = len(pending) - len(pending) % _WRITTEN_BLOCK_BYTES
        for at in range(0, whole, _WRITTEN_BLOCK_BYTES):
            yield bytes(pending[at : at + _WRITTEN_BLOCK_BYTES])
        del pending[:whole]
    if pending:
        yield bytes(pending)


def _checksum(data: bytes) -> bytes:
    value = google_crc32c.value(data)
    masked = ((value >> 15 | value << 17 & _UINT32) + _MASK_DELTA) & _UINT32
    return masked.to_bytes(4, "little")


def _damaged(file: BinaryIO, at: int, problem: str) -> DamagedError:
    name = getattr(file, "name", "the stream")
    return DamagedError(
        f"{name}: byte {at}: {problem}; nothing was taken from it; make or copy the backup again"
    )
