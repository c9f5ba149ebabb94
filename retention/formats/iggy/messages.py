"""Messages in a window of an Iggy log: their positions, headers, bodies and checksums."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

_LENGTHS = struct.Struct("<II")
_LENGTHS_DTYPE = np.dtype([("user_headers", "<u4"), ("payload", "<u4")])
_CHECKSUM_BYTES = 8
_STREAK = 32
"""The equally long messages after which looking for more of them at once pays off."""
MOST_MESSAGE_BYTES = 64 << 20
"""The maximum bytes of a message: the server accepts 64,000,000 bytes of payload and 100,000 of user headers."""


@dataclass(frozen=True)
class HeaderLayout:
    """The header of a message; payload and user headers follow it, in this order."""

    header: np.dtype[Any]
    lengths_at: int
    """The header's byte with the length of the user headers (u32); the payload's length (u32) follows it."""

    @property
    def header_bytes(self) -> int:
        """The bytes of the header."""
        return self.header.itemsize

    def length(self, window: bytes, at: int) -> int:
        """The bytes of the message that begins at `at`, according to its header."""
        user_headers, payload = _LENGTHS.unpack_from(window, at + self.lengths_at)
        return self.header_bytes + int(user_headers) + int(payload)

    def cuts(self, window: bytes, begin: int, end: int) -> np.ndarray:
        """The starts of the consecutive messages between `begin` and `end`, and the end of the last one; int64.

        Only a message's own header has its length, so the messages are visited one by one; after `_STREAK` messages of
        one length, all further ones of that length are found at once. Two whole messages of 80 and 100 bytes and a part
        of a third, from 0 on, have the cuts 0, 80, 180.
        """
        cuts, length = self._walked(window, begin, end)
        pieces = [np.array(cuts, np.int64)]
        while length:
            count = self._equally_long(window, cuts[-1], end, length)
            pieces.append(cuts[-1] + length * np.arange(1, count + 1))
            cuts, length = self._walked(window, cuts[-1] + length * count, end)
            pieces.append(np.array(cuts[1:], np.int64))
        return np.concatenate(pieces)

    def _walked(self, window: bytes, begin: int, end: int) -> tuple[list[int], int]:
        """The cuts up to the end of `_STREAK` equally long messages, and their length; 0 at the end of all messages."""
        cuts, streak, before = [begin], 0, 0
        lengths_at, header_bytes, unpack = self.lengths_at, self.header_bytes, _LENGTHS.unpack_from
        while begin + header_bytes <= end:
            user_headers, payload = unpack(window, begin + lengths_at)
            length = header_bytes + user_headers + payload
            begin += length
            if begin > end:
                break
            cuts.append(begin)
            streak = streak + 1 if length == before else 0
            before = length
            if streak == _STREAK:
                return cuts, length
        return cuts, 0

    def _equally_long(self, window: bytes, begin: int, end: int, length: int) -> int:
        """The number of consecutive messages of one length from `begin` on that end at `end` or before it."""
        most = (end - begin) // length
        if not most:
            return 0
        lengths = np.ndarray(most, _LENGTHS_DTYPE, window, begin + self.lengths_at, (length,))
        bodies = lengths["user_headers"].astype(np.int64) + lengths["payload"]
        others = np.flatnonzero(bodies != length - self.header_bytes)
        return int(others[0]) if len(others) else most


@dataclass(frozen=True)
class MessageColumns:
    """Messages of one window, column by column; offsets and times are u64, as in the log."""

    offsets: np.ndarray
    places: np.ndarray
    """Offsets of the messages by their position in the log; they name messages with a wrong checksum."""
    timestamps: np.ndarray
    """Times of the broker, microseconds since the epoch."""
    origin_timestamps: np.ndarray
    """Times of the producer, microseconds since the epoch."""
    ids: np.ndarray
    """Shape (messages, 2): the low and the high half."""
    bodies: np.ndarray
    """Shape (messages, 3), int64: start of the payload and of the user headers in the window, and their end."""
    sizes: np.ndarray
    """Bytes of each message in the log, int64."""
    sound: np.ndarray
    """A mask of the messages with a correct checksum."""

    def __len__(self) -> int:
        return len(self.offsets)

    def only(self, chosen: np.ndarray) -> MessageColumns:
        """The messages in a mask."""
        columns = {field.name: getattr(self, field.name)[chosen] for field in fields(self)}
        return MessageColumns(**columns)


def headers_at(window: bytes, layout: HeaderLayout, starts: np.ndarray) -> np.ndarray:
    """The headers that begin at `starts`, as a structured array."""
    places = max(0, len(window) - layout.header_bytes + 1)
    # Opaque items are copied whole; structured ones field by field.
    at_each_byte = np.ndarray(places, f"V{layout.header_bytes}", window, strides=(1,))
    return at_each_byte[starts].view(layout.header)


def digests(window: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """XXH3-64 of each message without its leading checksum."""
    places = zip((starts + _CHECKSUM_BYTES).tolist(), ends.tolist(), strict=True)
    computed = [xxh3_64_intdigest(window[start:end]) for start, end in places]
    return np.array(computed, np.uint64)


def bodies(layout: HeaderLayout, headers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The three positions of each message's body, shape (messages, 3).

    ::

    | header | payload | user headers |
             0         1              2
    """
    payload = starts + layout.header_bytes
    user_headers = payload + headers["payload_length"]
    return np.stack([payload, user_headers, user_headers + headers["user_headers_length"]], axis=1)


def texts(window: bytes, places: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Payloads and user headers (null for none) of messages with bodies at `places` (see `bodies`)."""
    if not len(places):
        return pa.array([], pa.binary()), pa.array([], pa.binary())
    # Payload, user headers, and the bytes before the next payload.
    parts = _cut(window, places)
    nth = np.arange(0, places.size, 3)
    without = places[:, 1] == places[:, 2]
    return parts.take(pa.array(nth)), parts.take(pa.array(nth + 1, mask=without))


def _cut(window: bytes, places: np.ndarray) -> pa.Array:
    """The pieces between ascending positions in a window, without a copy: positions are offsets of a binary column."""
    buffers = [None, pa.py_buffer(places.astype(np.int32).ravel()), pa.py_buffer(window)]
    return pa.Array.from_buffers(pa.binary(), places.size - 1, buffers)


def decimals(ids: np.ndarray) -> pa.Array:
    """Write numbers of 128 bits, given as (low, high), in decimal."""
    words = np.zeros((len(ids), 4), dtype="<u8")
    words[:, :2] = ids
    buffers = [None, pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.decimal256(39, 0), len(ids), buffers).cast(pa.string())


def halves_of(ids: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """The low and the high 64 bits of numbers in decimal, none of them null.

    Raises:
        ValueError: an id is not an integer of 128 bits.
    """
    if not pc.all(pc.match_substring_regex(ids, r"\A[0-9]{1,39}\z"), min_count=0).as_py():
        raise ValueError("an id is a whole number in decimal")
    numbers = ids.cast(pa.decimal256(39, 0)).combine_chunks()
    words = np.frombuffer(numbers.buffers()[1], dtype="<u8").reshape(-1, 4)
    halves = words[numbers.offset : numbers.offset + len(numbers)]
    if halves[:, 2:].any():
        raise ValueError("an id has 128 bits at most")
    return pa.array(halves[:, 0]), pa.array(halves[:, 1])
