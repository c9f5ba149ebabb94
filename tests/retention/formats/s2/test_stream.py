from __future__ import annotations

import io
import random

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.errors import DamagedError
from retention.formats.s2 import block as s2_block
from retention.formats.s2 import stream as s2

S2 = b"\xff\x06\x00\x00S2sTwO"
SNAPPY = b"\xff\x06\x00\x00sNaPpY"
NOISE = random.Random(1).randbytes(80_000)


def checksum(content: bytes) -> bytes:
    value: int = google_crc32c.value(content)
    return (((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def chunk(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "little") + body


def stream(*chunks: bytes) -> io.BytesIO:
    return io.BytesIO(b"".join(chunks))


def read(*chunks: bytes) -> bytes:
    return b"".join(s2.read_frames(stream(*chunks)))


class Encoder:
    """A naive encoder of operations of every kind, with their decoded bytes."""

    def __init__(self) -> None:
        self.code = bytearray()
        self.content = bytearray()

    def literal(self, content: bytes, width: int) -> None:
        length = len(content) - 1
        if width == 0 and length < 60:
            self.code += bytes((length << 2,)) + content
        else:
            width = max(width, (length.bit_length() + 7) // 8, 1)
            self.code += bytes((59 + width << 2,)) + length.to_bytes(width, "little") + content
        self.content += content

    def copy(self, offset: int, length: int, kind: int) -> None:
        if kind == 1 and offset < 2048 and 4 <= length <= 11:
            self.code += bytes((offset >> 8 << 5 | length - 4 << 2 | 1, offset & 0xFF))
        elif kind <= 2 and offset < 65536:
            self.code += bytes((length - 1 << 2 | 2,)) + offset.to_bytes(2, "little")
        else:
            self.code += bytes((length - 1 << 2 | 3,)) + offset.to_bytes(4, "little")
        self._again(offset, length)

    def repeat(self, offset: int, length: int) -> None:
        if length <= 8:
            self.code += bytes((length - 4 << 2 | 1, 0))
        elif length < 260:
            self.code += bytes((5 << 2 | 1, 0, length - 8))
        elif length < 65540:
            self.code += bytes((6 << 2 | 1, 0)) + (length - 260).to_bytes(2, "little")
        else:
            self.code += bytes((7 << 2 | 1, 0)) + (length - 65540).to_bytes(3, "little")
        self._again(offset, length)

    def block(self) -> bytes:
        rest, size = len(self.content), b""
        while rest >= 128:
            size, rest = size + bytes((rest & 127 | 128,)), rest >> 7
        return size + bytes((rest,)) + self.code

    def _again(self, offset: int, length: int) -> None:
        for _ in range(length):
            self.content.append(self.content[-offset])


def encoded(seed: int, operations: int) -> Encoder:
    choose, made, offset = random.Random(seed), Encoder(), 0
    made.literal(choose.randbytes(choose.choice([1, 59, 60, 61, 300, 3000])), choose.randrange(5))
    for _ in range(operations):
        kind = choose.randrange(5)
        if kind == 0:
            made.literal(
                choose.randbytes(choose.choice([1, 7, 60, 61, 256, 257])), choose.randrange(5)
            )
        elif kind == 4 and offset:
            made.repeat(offset, choose.choice([4, 7, 8, 9, 263, 264, 259, 260, 1000]))
        else:
            offset = choose.randint(1, min(len(made.content), choose.choice([3, 5000])))
            made.copy(offset, choose.randint(1, 64), kind)
    return made


@given(st.integers(0, 10**9), st.integers(0, 25))
def test_every_kind_of_operation_is_decoded(seed: int, operations: int) -> None:
    made = encoded(seed, operations)
    assert s2_block.decode(made.block()) == made.content


def test_long_repeats_and_blocks_beyond_64_kib_are_decoded() -> None:
    made = Encoder()
    made.literal(NOISE, 3)
    made.copy(70_000, 64, 3)
    for length in (65_539, 65_540, 200_000):
        made.repeat(70_000, length)
    assert s2_block.decode(made.block()) == made.content


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x81\x80\x80\x02" + b"\x00a",
        b"\x05\x00a\x01\x00",
        b"\x05\x00a\x01\x01\x15",
        b"\x05\x00a\x05\x02",
        b"\x09\x00a\x01\x01\x01",
        b"\x08\x00a\x01\x01\x01\x00",
        b"\x0a\x00a\x01\x01\x01\x00",
        b"\x0a\x00a\x01\x01\x1d\x00\xff\xff\xff",
        b"\x09\x00a\x01\x01\x1d\x00\x00",
    ],
)
def test_a_malformed_block_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="it"):
        s2_block.decode(block)


def test_a_stream_is_read_chunk_by_chunk_past_padding_and_index() -> None:
    made = encoded(7, 20)
    packed = chunk(0, checksum(bytes(made.content)) + made.block())
    plain = chunk(1, checksum(b"abc") + b"abc")
    skipped = chunk(0xFE, b"zzzz") + chunk(0x99, b"index") + chunk(0x80, b"")
    assert read(S2, packed, skipped, plain, SNAPPY, plain) == made.content + b"abcabc"
    assert read() == b""


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([chunk(1, b"")], "byte 0: the file is not an S2 or Snappy stream"),
        ([b"PK"], "ends within a chunk"),
        ([chunk(0xFF, b"sNaPpX")], "neither S2 nor Snappy"),
        ([S2, chunk(1, checksum(b"abc") + b"abd")], "byte 10: the checksum"),
        ([S2, chunk(1, b"ab")], "the checksum"),
        ([S2, chunk(0, checksum(b"abc") + b"\x03\x04abc")], "cannot be decoded"),
        ([S2, chunk(2, b"")], "chunk type 0x02 is unknown"),
        ([S2, chunk(1, checksum(b"abc") + b"abc")[:-1]], "ends within a chunk"),
        ([S2, b"\x01\x00"], "ends within a chunk"),
    ],
)
def test_a_damaged_stream_is_refused_where_it_is_damaged(chunks: list[bytes], problem: str) -> None:
    with pytest.raises(DamagedError, match=problem) as refused:
        read(*chunks)
    assert refused.value.exit_code == 6


@pytest.mark.parametrize("content", [b"", b"a", b"ab" * 100_000, NOISE])
def test_what_is_written_is_read_back(content: bytes) -> None:
    file = io.BytesIO()
    s2.write_frames(file, [content[:10], b"", content[10:]])
    assert file.getvalue().startswith(SNAPPY)
    blocks = list(s2.read_frames(io.BytesIO(file.getvalue())))
    assert b"".join(blocks) == content
    assert all(len(block) <= 65_536 for block in blocks)
