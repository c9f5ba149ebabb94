"""Logs of Iggy 0.9: batch behind batch, each with a header of its own and a checksum over those of its messages."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from retention.formats.iggy import messages
from retention.formats.iggy.era import CHECKSUM, TORN, EraName, Taken
from retention.formats.iggy.messages import Layout, Messages
from retention.formats.iggy.octets import numbers

LAYOUT = Layout(
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
MOST_BATCH_BYTES = 1 << 30
"""A log is rolled at 1 GiB at the latest."""
_FIELDS = struct.Struct("<QQQQQQI")
_OFFSET_AT, _COUNT_AT, _RESERVED_AT = 8, 48, 52
_CONTRADICTION = "the lengths of its messages do not add up to the batch"


class _Batch(NamedTuple):
    """The header of a batch: lengths in bytes, times in microseconds, all of them unsigned."""

    partition: int
    base_offset: int
    base_timestamp: int
    origin_timestamp: int
    length: int
    checksum: int
    message_count: int


class _Walked(NamedTuple):
    batch: _Batch
    cuts: list[int]
    """Where its messages begin, and where the last one ends."""


class Era09:
    """Iggy 0.9: a record is a batch of messages."""

    name: EraName = "0.9"
    header_bytes = BATCH_HEADER_BYTES
    is_gapless = True

    def take(self, window: bytes, left: int) -> Taken:
        """The batches at the beginning of a window up to the first that is malformed or whose checksum is wrong."""
        walked: list[_Walked] = []
        at, wants, problem = 0, 0, None
        while at < left:
            if len(window) - at < BATCH_HEADER_BYTES:
                wants = BATCH_HEADER_BYTES
                problem = TORN if left - at < BATCH_HEADER_BYTES else None
                break
            batch = _header(window, at)
            problem = _contradiction(batch, left - at)
            if problem is None and at + batch.length > len(window):
                wants = batch.length
                break
            cuts = (
                [] if problem else LAYOUT.cuts(window, at + BATCH_HEADER_BYTES, at + batch.length)
            )
            problem = problem or _wrong(window, at, batch, cuts)
            if problem:
                break
            walked.append(_Walked(batch, cuts))
            at += batch.length
        return Taken(_messages(window, walked), at, problem, wants)

    def length_and_offset(self, header: bytes) -> tuple[int, int] | None:
        """Of a batch; None where it would be shorter than its own header."""
        if len(header) < BATCH_HEADER_BYTES:
            return None
        batch = _header(header, 0)
        return (batch.length, batch.base_offset) if batch.length >= BATCH_HEADER_BYTES else None

    def candidates(self, window: bytes, low: int, high: int) -> np.ndarray:
        """Places before a header with a base offset within the bounds, some messages, and zeros to its end."""
        offsets = numbers(window, _OFFSET_AT, BATCH_HEADER_BYTES)
        counts = numbers(window, _COUNT_AT, BATCH_HEADER_BYTES)
        likely = (offsets >= np.uint64(low)) & (offsets < np.uint64(high))
        likely &= (counts > 0) & (counts < np.uint64(2**32))
        places = np.flatnonzero(likely)
        return np.array([at for at in places.tolist() if _is_header(window, at)], dtype=np.int64)

    def is_sound(self, record: bytes) -> bool:
        """Whether the messages add up to the batch, and its checksum holds."""
        batch = _header(record, 0)
        cuts = LAYOUT.cuts(record, BATCH_HEADER_BYTES, len(record))
        return _wrong(record, 0, batch, cuts) is None


def _header(window: bytes, at: int) -> _Batch:
    return _Batch._make(_FIELDS.unpack_from(window, at))


def _is_header(window: bytes, at: int) -> bool:
    rest = window[at + _RESERVED_AT : at + BATCH_HEADER_BYTES]
    return not any(rest) and _contradiction(_header(window, at), MOST_BATCH_BYTES) is None


def _contradiction(batch: _Batch, left: int) -> str | None:
    least = BATCH_HEADER_BYTES + batch.message_count * LAYOUT.header_bytes
    if batch.length < least:
        return f"a batch of {batch.message_count} messages claims {batch.length} bytes"
    if batch.length > left:
        return TORN
    if batch.length > MOST_BATCH_BYTES:
        return f"a batch claims {batch.length} bytes, more than a log has"
    return None


def _wrong(window: bytes, at: int, batch: _Batch, cuts: list[int]) -> str | None:
    """What is wrong with a batch that begins at `at` and whose messages lie between `cuts`."""
    if cuts[-1] != at + batch.length or len(cuts) != batch.message_count + 1:
        return _CONTRADICTION
    fields = window[at : at + 40] + window[at + _COUNT_AT : at + _RESERVED_AT]
    checksums = b"".join([window[cut : cut + 8] for cut in cuts[:-1]])
    return None if xxh3_64_intdigest(fields + checksums) == batch.checksum else CHECKSUM


def _messages(window: bytes, walked: list[_Walked]) -> Messages:
    counts = np.array([one.batch.message_count for one in walked], dtype=np.int64)
    starts = messages.joined([np.array(one.cuts[:-1], dtype=np.int64) for one in walked])
    ends = messages.joined([np.array(one.cuts[1:], dtype=np.int64) for one in walked])
    headers = messages.headers_at(window, LAYOUT, starts)
    firsts = np.cumsum(counts) - counts
    sizes = ends - starts
    sizes[firsts[counts > 0]] += BATCH_HEADER_BYTES

    def of_batch(field: str) -> np.ndarray:
        values = np.array([getattr(one.batch, field) for one in walked], dtype=np.uint64)
        return np.repeat(values, counts)

    base = of_batch("base_offset")
    nth = (np.arange(len(starts)) - np.repeat(firsts, counts)).astype(np.uint64)
    return Messages(
        offsets=_saturated(base, headers["offset_delta"]),
        places=_saturated(base, nth),
        timestamps=of_batch("base_timestamp"),
        origin_timestamps=_saturated(of_batch("origin_timestamp"), headers["timestamp_delta"]),
        ids=headers["id"],
        bodies=messages.bodies(LAYOUT, headers, starts),
        sizes=sizes,
        sound=headers["checksum"] == messages.digests(window, starts, ends),
    )


def _saturated(numbers: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Sums of u64, their maximum where they would wrap."""
    sums = numbers + deltas
    return np.where(sums < numbers, np.uint64(2**64 - 1), sums)
