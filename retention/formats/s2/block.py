"""Decoding of one S2 block: a Snappy block in which a copy may also repeat the previous copy's offset."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

MAX_BYTES = 4 << 20
"""The maximum decoded bytes of a block (S2 framing format)."""

_LENGTH_BYTES = 5
_MORE = 0x80
_LONGEST_SHORT_LITERAL = 60
_REPEAT_LENGTHS = {5: (1, 8), 6: (2, (1 << 8) + 4), 7: (3, (1 << 16) + 4)}


def decode(block: bytes) -> bytes:
    """Decode an S2 or Snappy block.

    Raises:
        ValueError: the block is malformed, or its content is longer than `MAX_BYTES`.
    """
    size, start = _size(block)
    with suppress(OSError):  # Arrow refuses a block that repeats an offset
        content: bytes = pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
        return content
    try:
        decoded = _decode(block, start, size)
    except IndexError as error:
        raise ValueError("it ends within an operation") from error
    if len(decoded) != size:
        raise ValueError(f"it has {len(decoded)} bytes and claims {size}")
    return bytes(decoded)


def _size(block: bytes) -> tuple[int, int]:
    size = 0
    for at, byte in enumerate(block[:_LENGTH_BYTES]):
        size |= (byte & ~_MORE) << (7 * at)
        if byte < _MORE:
            if size > MAX_BYTES:
                raise ValueError(f"it claims to hold {size} bytes")
            return size, at + 1
    raise ValueError("its length is malformed")


def _decode(block: bytes, at: int, size: int) -> bytearray:  # noqa: C901  (one tight loop)
    content, offset, end = bytearray(), 0, len(block)
    while at < end:
        tag = block[at]
        kind = tag & 3
        if kind == 0:
            length, at = (tag >> 2) + 1, at + 1
            if length > _LONGEST_SHORT_LITERAL:
                width = length - _LONGEST_SHORT_LITERAL
                length, at = int.from_bytes(block[at : at + width], "little") + 1, at + width
            content += block[at : at + length]
            at += length
            continue
        if kind == 2:  # noqa: PLR2004
            length, offset, at = (tag >> 2) + 1, block[at + 1] | block[at + 2] << 8, at + 3
        elif kind == 1 and (near := (tag & 0xE0) << 3 | block[at + 1]):
            length, offset, at = (tag >> 2 & 7) + 4, near, at + 2
        elif kind == 1:
            length, at = _repeated(block, at, size - len(content))
        else:
            length, offset, at = (
                (tag >> 2) + 1,
                int.from_bytes(block[at + 1 : at + 5], "little"),
                at + 5,
            )
        begin = len(content) - offset
        if begin < 0 or not offset:
            raise ValueError("it copies from before its beginning")
        if length <= offset:
            content += content[begin : begin + length]
        else:
            content += (content[begin:] * (length // offset + 1))[:length]
    return content


def _repeated(block: bytes, at: int, room: int) -> tuple[int, int]:
    """The length of a repeat at `at`, and the position of the next operation."""
    field = block[at] >> 2 & 7
    width, base = _REPEAT_LENGTHS.get(field, (0, field + 4))
    length = base + int.from_bytes(block[at + 2 : at + 2 + width], "little")
    if length > room:
        raise ValueError("it has more bytes than it claims")
    return length, at + 2 + width
