from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.formats.iggy.user_headers import Typed, Value, is_valid, parse

ROUND_TRIPS: list[tuple[int, str, bytes, Value, str]] = [
    (1, "raw", b"\x00\xff", b"\x00\xff", "00ff"),
    (2, "string", "größe".encode(), "größe", "größe"),
    (3, "bool", b"\x01", True, "True"),
    (3, "bool", b"\x00", False, "False"),
    (4, "int8", b"\xff", -1, "-1"),
    (5, "int16", struct.pack("<h", -2), -2, "-2"),
    (6, "int32", struct.pack("<i", -(2**31)), -(2**31), "-2147483648"),
    (7, "int64", struct.pack("<q", 5), 5, "5"),
    (8, "int128", (-5).to_bytes(16, "little", signed=True), -5, "-5"),
    (9, "uint8", b"\xff", 255, "255"),
    (10, "uint16", struct.pack("<H", 65_535), 65_535, "65535"),
    (11, "uint32", struct.pack("<I", 91), 91, "91"),
    (12, "uint64", struct.pack("<Q", 2**64 - 1), 2**64 - 1, str(2**64 - 1)),
    (13, "uint128", (2**127).to_bytes(16, "little"), 2**127, str(2**127)),
    (14, "float32", struct.pack("<f", 0.5), 0.5, "0.5"),
    (15, "float64", struct.pack("<d", 0.1), 0.1, "0.1"),
]


def stored(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + struct.pack("<I", len(content)) + content


KEY = stored(2, b"key")


@pytest.mark.parametrize(("kind", "name", "content", "value", "text"), ROUND_TRIPS)
def test_a_value_is_what_its_kind_says(
    kind: int, name: str, content: bytes, value: Value, text: str
) -> None:
    (pair,) = parse(KEY + stored(kind, content))
    assert pair == (Typed("string", b"key"), Typed(name, content))
    assert (pair[1].value, pair[1].text) == (value, text)
    assert type(pair[1].value) is type(value)


def test_pairs_keep_their_order_and_keys_have_types_too() -> None:
    block = stored(11, b"\x01\0\0\0") + stored(3, b"\x01") + KEY + stored(1, b"x") + KEY + KEY
    assert [(key.text, value.text) for key, value in parse(block)] == [
        ("1", "True"),
        ("key", "78"),
        ("key", "key"),
    ]
    assert parse(b"") == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (KEY, "end with the key 'key', without a value"),
        (KEY + b"\x02\x01", "end within the length at byte 8"),
        (KEY + stored(2, b""), "claim 0 bytes at byte 8"),
        (KEY + stored(2, b"x" * 256), "claim 256 bytes"),
        (KEY + stored(2, b"xy")[:-1], "claim 2 bytes"),
        (KEY + b"\x02\xff\xff\xff\xff", "claim 4294967295 bytes"),
        (KEY + stored(0, b"x"), "an unknown kind, 0, at byte 8"),
        (KEY + stored(16, b"x"), "an unknown kind, 16"),
        (KEY + stored(11, b"xyz"), "a uint32 of 3 bytes at byte 8"),
        (KEY + stored(2, b"\xff"), "can't decode byte 0xff"),
    ],
)
def test_what_is_no_block_is_refused(block: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(block)
    assert not is_valid(block)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(block: bytes) -> None:
    if is_valid(block):
        pairs = [item for pair in parse(block) for item in pair]
        assert sum(5 + len(item.content) for item in pairs) == len(block)
        assert all(item.text or math.isnan(float(item.text)) for item in pairs)
