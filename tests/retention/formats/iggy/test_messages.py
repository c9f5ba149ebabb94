from __future__ import annotations

import random
import struct

import pytest

from retention.formats.iggy import era_08, era_09
from retention.formats.iggy.messages import HeaderLayout

LAYOUTS = [era_08.LAYOUT, era_09.LAYOUT]


def message(layout: HeaderLayout, user_headers: int, payload: int) -> bytes:
    lengths = struct.pack("<II", user_headers, payload)
    header = bytearray(b"h" * layout.header_bytes)
    header[layout.lengths_at : layout.lengths_at + 8] = lengths
    return bytes(header) + b"x" * (user_headers + payload)


def visited(layout: HeaderLayout, window: bytes, begin: int, end: int) -> list[int]:
    """The cuts, found message by message."""
    cuts = [begin]
    while cuts[-1] + layout.header_bytes <= end:
        following = cuts[-1] + layout.length(window, cuts[-1])
        if following > end:
            break
        cuts.append(following)
    return cuts


@pytest.mark.parametrize("layout", LAYOUTS)
def test_messages_found_at_once_are_those_found_one_by_one(layout: HeaderLayout) -> None:
    chance = random.Random(7)
    for _ in range(60):
        runs = [
            message(layout, chance.choice([0, 0, 3]), chance.randrange(40))
            * chance.choice([1, 2, 31, 32, 33, 34, 35, 200])
            for _ in range(chance.randrange(6))
        ]
        begin = chance.choice([0, 5])
        window = b"b" * begin + b"".join(runs) + b"after"
        for end in (len(window) - 5, len(window) - 6, chance.randint(begin, len(window))):
            found = layout.cuts(window[:end], begin, end)
            assert found.tolist() == visited(layout, window, begin, end)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_split_between_headers_and_payload_is_the_same_length(
    layout: HeaderLayout,
) -> None:
    window = message(layout, 0, 8) * 40 + message(layout, 8, 0) * 40 + message(layout, 0, 9)
    cuts = layout.cuts(window, 0, len(window)).tolist()
    assert cuts == visited(layout, window, 0, len(window))
    assert len(cuts) == 82


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lengths_beyond_32_bits_end_the_messages(layout: HeaderLayout) -> None:
    wraps = message(layout, 0, 0)
    wraps = wraps[: layout.lengths_at] + b"\xff" * 8 + wraps[layout.lengths_at + 8 :]
    window = message(layout, 0, 0) * 40 + wraps
    assert layout.cuts(window, 0, len(window)).tolist() == [
        nth * layout.header_bytes for nth in range(41)
    ]
