"""Logs of Iggy 0.9: consecutive batches, each with a header and a checksum of its messages' checksums."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
_NO_PLACES = np.empty(0, np.int64)
_CONTRADICTION = "the lengths of its messages do not add up to the batch"


class _Framing(NamedTuple):
    """The extent of a batch, according to its header."""

    length: int
    """The bytes of the batch, with its header."""
    checksum: int
    message_count: int


class _Batch(NamedTuple):
    """A batch in a window."""

    at: int
    framing: _Framing
    cuts: np.ndarray
    """The starts of its messages, and the end of the last one."""

    @property
    def contradicts_itself(self) -> bool:
        """Whether its messages do not add up to it."""
        end, count = self.at + self.framing.length, self.framing.message_count
        return bool(self.cuts[-1] != end) or len(self.cuts) != count + 1


@dataclass(frozen=True)
class _Framed:
    """The batches at the beginning of a window."""

    batches: Sequence[_Batch]
    problem: str | None = None
    """The problem of the following one; None if none is known."""
    wants: int = 0
    """The bytes to read for the following one if the window ends within it; otherwise 0."""

    @cached_property
    def starts(self) -> np.ndarray:
        """The starts of all messages."""
        return np.concatenate([_NO_PLACES, *(batch.cuts[:-1] for batch in self.batches)])

    @cached_property
    def ends(self) -> np.ndarray:
        """The ends of all messages."""
        return np.concatenate([_NO_PLACES, *(batch.cuts[1:] for batch in self.batches)])

    @property
    def end(self) -> int:
        """The end of the last batch."""
        return int(self.batches[-1].cuts[-1]) if self.batches else 0


class Era09:
    """Iggy 0.9: a record is a batch of messages."""

    name: EraName = "0.9"
    header_bytes = BATCH_HEADER_BYTES
    is_gapless = True

    def take(self, window: bytes, left: int) -> WholeRecords:
        """Read the batches at the beginning of a window up to the first malformed one or wrong checksum."""
        framed = _framed(window, left)
        headers = messages.headers_at(window, LAYOUT, framed.starts)
        sound = _count_sound(window, framed.batches, headers["checksum"])
        if sound < len(framed.batches):
            framed = _Framed(framed.batches[:sound], CHECKSUM)
            headers = headers[: len(framed.starts)]
        return WholeRecords(
            _messages(window, framed, headers), framed.end, framed.problem, framed.wants
        )

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
        framed = _framed(record, len(record))
        headers = messages.headers_at(record, LAYOUT, framed.starts)
        return _count_sound(record, framed.batches, headers["checksum"]) == 1


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


def _framed(window: bytes, left: int) -> _Framed:
    """The batches at the beginning of a window whose messages add up to them; no checksum is compared."""
    batches: list[_Batch] = []
    at, wants, problem = 0, 0, None
    while at < left and problem is None:
        if len(window) - at < BATCH_HEADER_BYTES:
            wants = BATCH_HEADER_BYTES
            problem = TORN if left - at < BATCH_HEADER_BYTES else None
            break
        framing = _framing(window, at)
        problem = _impossible(framing, left - at)
        if problem is None and at + framing.length > len(window):
            wants = framing.length
            break
        if problem is None:
            cuts = LAYOUT.cuts(window, at + BATCH_HEADER_BYTES, at + framing.length)
            batches.append(_Batch(at, framing, cuts))
            problem = _CONTRADICTION if batches[-1].contradicts_itself else None
            at += framing.length
    return _Framed(batches[:-1] if problem == _CONTRADICTION else batches, problem, wants)


def _count_sound(window: bytes, batches: Sequence[_Batch], checksums: np.ndarray) -> int:
    """The number of batches before the first one with a wrong checksum.

    Args:
        window: the bytes with the batches.
        batches: where they are.
        checksums: those of all their messages, as stored.
    """
    stored, begin = checksums.tobytes(), 0
    for nth, (at, framing, _) in enumerate(batches):
        end = begin + _OFFSET.size * framing.message_count
        fields = window[at : at + _CHECKSUM_AT] + window[at + _COUNT_AT : at + _RESERVED_AT]
        if xxh3_64_intdigest(fields + stored[begin:end]) != framing.checksum:
            return nth
        begin = end
    return len(batches)


def _messages(window: bytes, framed: _Framed, headers: np.ndarray) -> MessageColumns:
    """The messages of batches, with their headers."""
    places = np.array([batch.at for batch in framed.batches], np.int64)
    starts, ends = framed.starts, framed.ends
    of_batches = messages.headers_at(window, _BATCH, places)
    counts = of_batches["message_count"].astype(np.int64)
    firsts = np.cumsum(counts) - counts
    nth = np.arange(len(starts)) - np.repeat(firsts, counts)
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
