"""Logs of Iggy 0.7 and 0.8: consecutive messages, each with a checksum of its whole content."""

from __future__ import annotations

import numpy as np
from xxhash import xxh3_64_intdigest

from retention.formats.iggy import messages
from retention.formats.iggy.era import CHECKSUM, TORN, EraName, WholeRecords
from retention.formats.iggy.messages import MOST_MESSAGE_BYTES, HeaderLayout, MessageColumns
from retention.formats.iggy.octets import numbers

LAYOUT = HeaderLayout(
    np.dtype(
        [
            ("checksum", "<u8"),
            ("id", "<u8", (2,)),
            ("offset", "<u8"),
            ("timestamp", "<u8"),
            ("origin_timestamp", "<u8"),
            ("user_headers_length", "<u4"),
            ("payload_length", "<u4"),
            ("reserved", "<u8"),
        ]
    ),
    lengths_at=48,
)
_OFFSET_AT, _RESERVED_AT = 24, 56


class Era08:
    """Iggy 0.7 and 0.8: a record is a message."""

    name: EraName = "0.8"
    header_bytes = LAYOUT.header_bytes
    is_gapless = False

    def take(self, window: bytes, left: int) -> WholeRecords:
        """Read the messages at the beginning of a window up to the first one with a wrong checksum."""
        cuts = LAYOUT.cuts(window, 0, len(window))
        starts, ends = cuts[:-1], cuts[1:]
        headers = messages.headers_at(window, LAYOUT, starts)
        wrong = np.flatnonzero(headers["checksum"] != messages.digests(window, starts, ends))
        if len(wrong):
            count = int(wrong[0])
            return WholeRecords(
                _messages(headers[:count], cuts[: count + 1]), int(cuts[count]), CHECKSUM
            )
        end = int(cuts[-1])
        problem, wants = _next(window, end, left - end)
        return WholeRecords(_messages(headers, cuts), end, problem, wants)

    def length_and_offset(self, header: bytes) -> tuple[int, int] | None:
        """The length and offset of a message; None for zeros."""
        if len(header) < self.header_bytes or not any(header):
            return None
        return LAYOUT.length(header, 0), int.from_bytes(header[_OFFSET_AT:][:8], "little")

    def candidates(self, window: bytes, low: int, high: int) -> np.ndarray:
        """Positions of headers with a checksum, an offset within bounds, possible lengths, and zero reserved bytes."""
        offsets = numbers(window, _OFFSET_AT, self.header_bytes)
        likely = (offsets >= np.uint64(low)) & (offsets < np.uint64(high))
        likely &= numbers(window, _RESERVED_AT, self.header_bytes) == 0
        likely &= numbers(window, 0, self.header_bytes) != 0
        places = np.flatnonzero(likely)
        headers = messages.headers_at(window, LAYOUT, places)
        lengths = headers["payload_length"].astype(np.int64) + headers["user_headers_length"]
        fitting: np.ndarray = places[lengths <= MOST_MESSAGE_BYTES]
        return fitting

    def is_sound(self, record: bytes) -> bool:
        """Whether the message's checksum is correct."""
        return xxh3_64_intdigest(record[8:]) == int.from_bytes(record[:8], "little")


def _next(window: bytes, end: int, left: int) -> tuple[str | None, int]:
    """The problem of the message at `end`; or its length in bytes, if the window ends within it."""
    if left < LAYOUT.header_bytes:
        return (TORN if left else None), 0
    if len(window) - end < LAYOUT.header_bytes:
        return None, LAYOUT.header_bytes
    length = LAYOUT.length(window, end)
    if length > left:
        return TORN, 0
    if length > MOST_MESSAGE_BYTES:
        return f"it claims {length} bytes, more than a message can have", 0
    return None, length


def _messages(headers: np.ndarray, cuts: np.ndarray) -> MessageColumns:
    return MessageColumns(
        offsets=headers["offset"],
        places=headers["offset"],
        timestamps=headers["timestamp"],
        origin_timestamps=headers["origin_timestamp"],
        ids=headers["id"],
        bodies=messages.bodies(LAYOUT, headers, cuts[:-1]),
        sizes=np.diff(cuts),
        sound=np.ones(len(headers), dtype=bool),
    )
