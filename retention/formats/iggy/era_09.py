"""Logs of Iggy 0.9: consecutive batches, each with a header and a checksum of its messages' checksums."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from retention.core.wording import counted
from retention.formats.iggy import messages
from retention.formats.iggy.era import CHECKSUM, TORN, EraName, WholeRecords
from retention.formats.iggy.messages import HeaderLayout, MessageColumns
from retention.formats.iggy.octets import numbers

LAYOUT = HeaderLayout(
    np.dtype(
        [
            ("checksum", "<u8"),
            ("id", "<u8", (2,)),
            ("offset_delta", "<u4"),
            ("timestamp_delta", "<u4"),
            ("user_headers_length", "<u4"),
            ("payload_length", "<u4"),
            ("reserved", "<u8"),
        ]
    ),
    lengths_at=32,
)
BATCH_HEADER_BYTES = 256
_BATCH = HeaderLayout(
    np.dtype(
        [
            ("partition", "<u8"),
            ("base_offset", "<u8"),
            ("base_timestamp", "<u8"),
            ("origin_timestamp", "<u8"),
            ("length", "<u8"),
            ("checksum", "<u8"),
            ("message_count", "<u4"),
        ]
    ),
    lengths_at=32,
)
MOST_BATCH_BYTES = 1 << 30
"""The maximum bytes of a batch: a log is rolled at 1 GiB at the latest."""
_OFFSET = struct.Struct("<Q")
_FRAMING = struct.Struct("<QQI")
_OFFSET_AT, _LENGTH_AT, _CHECKSUM_AT, _COUNT_AT, _RESERVED_AT = 8, 32, 40, 48, 52
_CONTRADICTION = "the lengths of its messages do not add up to the batch"


class _Framing(NamedTuple):
    """The extent of a batch, according to its header."""

    length: int
    """The bytes of the batch, with its header."""
    checksum: int
    message_count: int


class Era09:
    """Iggy 0.9: a record is a batch of messages."""

    name: EraName = "0.9"
    header_bytes = BATCH_HEADER_BYTES
    is_gapless = True

    def take(self, window: bytes, left: int) -> WholeRecords:
        """Read the batches at the beginning of a window up to the first malformed one or wrong checksum."""
        batches: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        at, wants, problem = 0, 0, None
        while at < left and problem is None:
            if len(window) - at < BATCH_HEADER_BYTES:
                wants = BATCH_HEADER_BYTES
                problem = TORN if left - at < BATCH_HEADER_BYTES else None
                break
            framing = _framing(window, at)
            length = framing.length
            problem = _impossible(framing, left - at)
            if problem is None and at + length > len(window):
                wants = length
                break
            cuts = [] if problem else LAYOUT.cuts(window, at + BATCH_HEADER_BYTES, at + length)
            problem = problem or _wrong(window, at, framing, cuts)
            if problem is None:
                batches.append(at)
                starts += cuts[:-1]
                ends += cuts[1:]
                at += length
        whole = _messages(
            window, np.array(batches, int), np.array(starts, int), np.array(ends, int)
        )
        return WholeRecords(whole, at, problem, wants)

    def length_and_offset(self, header: bytes) -> tuple[int, int] | None:
        """The length and offset of a batch; None if it is shorter than its header."""
        if len(header) < BATCH_HEADER_BYTES:
            return None
        length = _framing(header, 0).length
        offset = int(_OFFSET.unpack_from(header, _OFFSET_AT)[0])
        return (length, offset) if length >= BATCH_HEADER_BYTES else None

    def candidates(self, window: bytes, low: int, high: int) -> np.ndarray:
        """Positions of headers with a base offset within bounds, at least one message, and zeros to the end."""
        offsets = numbers(window, _OFFSET_AT, BATCH_HEADER_BYTES)
        counts = numbers(window, _COUNT_AT, BATCH_HEADER_BYTES)
        likely = (offsets >= np.uint64(low)) & (offsets < np.uint64(high))
        likely &= (counts > 0) & (counts < np.uint64(2**32))
        places = np.flatnonzero(likely)
        return np.array([at for at in places.tolist() if _is_header(window, at)], dtype=np.int64)

    def is_sound(self, record: bytes) -> bool:
        """Whether the messages add up to the batch, and its checksum is correct."""
        cuts = LAYOUT.cuts(record, BATCH_HEADER_BYTES, len(record))
        return _wrong(record, 0, _framing(record, 0), cuts) is None


def _framing(window: bytes, at: int) -> _Framing:
    return _Framing._make(_FRAMING.unpack_from(window, at + _LENGTH_AT))


def _is_header(window: bytes, at: int) -> bool:
    rest = window[at + _RESERVED_AT : at + BATCH_HEADER_BYTES]
    return not any(rest) and _impossible(_framing(window, at), MOST_BATCH_BYTES) is None


def _impossible(framing: _Framing, left: int) -> str | None:
    """The reason why no batch can have this extent with `left` bytes to the end; None if one can."""
    length, _, count = framing
    if length < BATCH_HEADER_BYTES + count * LAYOUT.header_bytes:
        return f"a batch of {counted(count, 'message')} claims {length} bytes"
    if length > left:
        return TORN
    if length > MOST_BATCH_BYTES:
        return f"a batch claims {length} bytes, more than a log has"
    return None


def _wrong(window: bytes, at: int, framing: _Framing, cuts: list[int]) -> str | None:
    """The problem of a batch that begins at `at`, with its messages between `cuts`; None if it is sound."""
    if cuts[-1] != at + framing.length or len(cuts) != framing.message_count + 1:
        return _CONTRADICTION
    fields = window[at : at + _CHECKSUM_AT] + window[at + _COUNT_AT : at + _RESERVED_AT]
    checksums = b"".join([window[cut : cut + 8] for cut in cuts[:-1]])
    return None if xxh3_64_intdigest(fields + checksums) == framing.checksum else CHECKSUM


def _messages(
    window: bytes, batches: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> MessageColumns:
    """The messages from `starts` to `ends` in the batches that begin at `batches`."""
    of_batches = messages.headers_at(window, _BATCH, batches)
    counts = of_batches["message_count"].astype(np.int64)
    firsts = np.cumsum(counts) - counts
    nth = np.arange(len(starts)) - np.repeat(firsts, counts)
    headers = messages.headers_at(window, LAYOUT, starts)
    base = np.repeat(of_batches["base_offset"], counts)
    origin = np.repeat(of_batches["origin_timestamp"], counts)
    return MessageColumns(
        offsets=_saturated(base, headers["offset_delta"]),
        places=_saturated(base, nth.astype(np.uint64)),
        timestamps=np.repeat(of_batches["base_timestamp"], counts),
        origin_timestamps=_saturated(origin, headers["timestamp_delta"]),
        ids=headers["id"],
        bodies=messages.bodies(LAYOUT, headers, starts),
        sizes=ends - starts + BATCH_HEADER_BYTES * (nth == 0),
        sound=headers["checksum"] == messages.digests(window, starts, ends),
    )


def _saturated(numbers: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Add u64 without wrapping; an overflow gives the largest u64."""
    sums = numbers + deltas
    return np.where(sums < numbers, np.uint64(2**64 - 1), sums)
