"""Plain pages of byte strings without some of their values: decompressed, cut, and compressed again."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from retention.storage.row_groups.compact import Field, Kind, struct_bytes
from retention.storage.row_groups.footer import UnknownLayoutError
from retention.storage.row_groups.levels import levels_bytes, split_levels
from retention.storage.row_groups.pages import (
    DATA_PAGE,
    PLAIN,
    RLE,
    OfData,
    OfPage,
    PlainPage,
)
from retention.storage.row_groups.plain_chunk import PlainPages

PAGE_BYTES, PAGE_ROWS = 1 << 20, 20_000
"""The length from which on a page is complete, and the number of values; those of Arrow's writer."""
_CODEC = pa.Codec("zstd")
"""The codec of data files; its default level is that of Arrow's writer."""
_LENGTH = struct.Struct("<I")


def cut_pages(
    chunk: pa.Buffer, pages: Sequence[PlainPage], keeps: np.ndarray, lengths: np.ndarray
) -> Iterator[PlainPages]:
    """The values to keep, in pages of about `PAGE_BYTES`, one at a time.

    Args:
        chunk: the column chunk, compressed by Zstandard.
        pages: its pages.
        keeps: whether to keep each value.
        lengths: the probable length of each value, up to a constant. Each is compared with the stored length; where
            they differ, the page is read length by length.

    Raises:
        UnknownLayoutError: a page is damaged.
        OSError: a page cannot be decompressed.
    """
    held, first = _HeldValues(), 0
    for page in pages:
        page.check(memoryview(chunk))
        rows = slice(first, first + page.values)
        stored = chunk.slice(page.begin, page.end - page.begin)
        content = memoryview(_CODEC.decompress(stored, page.decoded_bytes)).cast("B")
        held.take(content, keeps[rows], lengths[rows])
        first = rows.stop
        if held.nbytes >= PAGE_BYTES or held.rows >= PAGE_ROWS:
            yield held.emptied()
    if held.rows:
        yield held.emptied()


@dataclass
class _HeldValues:
    """Successive values that wait until they are a page."""

    runs: list[memoryview] = field(default_factory=list)
    """The stored bytes of values, each with its length before it."""
    defined: list[np.ndarray] = field(default_factory=list)
    """Whether each value is not null."""
    rows: int = 0
    nbytes: int = 0

    def take(self, content: memoryview, keeps: np.ndarray, lengths: np.ndarray) -> None:
        """Add the values of a page to keep."""
        defined, begin = split_levels(content, len(keeps))
        ends = _ends(content, begin, lengths[defined])
        begins, after = _runs(keeps[defined], ends)
        self.runs += map(content.__getitem__, map(slice, begins.tolist(), after.tolist()))
        self.nbytes += int((after - begins).sum())
        kept = defined[keeps]
        self.defined.append(kept)
        self.rows += len(kept)

    def emptied(self) -> PlainPages:
        """Empty the buffer, and return its content as a page."""
        levels = levels_bytes(np.concatenate(self.defined))
        page = _page(b"".join([levels, *self.runs]), self.rows)
        self.runs, self.defined, self.rows, self.nbytes = [], [], 0, 0
        return page


def _page(content: bytes, values: int) -> PlainPages:
    stored = _CODEC.compress(content)
    data = {
        OfData.VALUES: values,
        OfData.ENCODING: PLAIN,
        OfData.DEFINITION_LEVELS: RLE,
        OfData.REPETITION_LEVELS: RLE,
    }
    numbers = {
        OfPage.TYPE: DATA_PAGE,
        OfPage.DECODED_BYTES: len(content),
        OfPage.STORED_BYTES: stored.size,
        OfPage.CHECKSUM: _signed(zlib.crc32(stored)),
    }
    fields = {int(number): Field(Kind.I32, value) for number, value in numbers.items()}
    described = {int(number): Field(Kind.I32, value) for number, value in data.items()}
    described[OfData.STATISTICS] = Field(Kind.STRUCT, {})
    header = struct_bytes(fields | {int(OfPage.DATA): Field(Kind.STRUCT, described)})
    return PlainPages([pa.py_buffer(header), stored], 1, len(header) + len(content))


def _signed(checksum: int) -> int:
    return int.from_bytes(checksum.to_bytes(4, "little"), "little", signed=True)


def _runs(keeps: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions at which runs of values to keep begin, and those at which they end.

    values   0123456     values 1 and 5 go: the runs are [ends[0], ends[1]), [ends[2], ends[5]), [ends[6], ends[7])
    """
    edges = np.flatnonzero(np.diff(keeps, prepend=False, append=False))
    bounds = ends[edges]
    return bounds[::2], bounds[1::2]


def _ends(content: memoryview, begin: int, lengths: np.ndarray) -> np.ndarray:
    """The position of each value, its length before it included, and the position after the last one.

    Raises:
        UnknownLayoutError: the values are not the rest of the page.
    """
    expected = _expected_ends(content, begin, lengths)
    if _are_stored(content, expected):
        return expected
    return _stored_ends(content, begin, len(lengths))


def _expected_ends(content: memoryview, begin: int, lengths: np.ndarray) -> np.ndarray:
    """The positions if the lengths are right, but for a constant that the first stored length tells."""
    steps = lengths.astype(np.int64) + _LENGTH.size
    if len(steps) and begin + _LENGTH.size <= len(content):
        steps += _LENGTH.unpack_from(content, begin)[0] - lengths[0]
    return np.concatenate(([begin], begin + np.cumsum(steps)))


def _are_stored(content: memoryview, ends: np.ndarray) -> bool:
    """Whether the length stored at each position leads to the next one, and the last position is the end."""
    steps = np.diff(ends)
    is_possible = (steps >= _LENGTH.size) & (steps <= len(content))
    if ends[-1] != len(content) or not is_possible.all():
        return False
    if not len(steps):
        return True
    every = np.ndarray(len(content) - _LENGTH.size + 1, "<u4", content, strides=(1,))
    return bool((every[ends[:-1]] == steps - _LENGTH.size).all())


def _stored_ends(content: memoryview, begin: int, count: int) -> np.ndarray:
    ends, at = [begin], begin
    try:
        for _ in range(count):
            at += _LENGTH.size + _LENGTH.unpack_from(content, at)[0]
            ends.append(at)
    except struct.error as error:
        raise UnknownLayoutError("a value is cut off") from error
    if at != len(content):
        raise UnknownLayoutError("the values of a page are shorter or longer than the page")
    return np.array(ends, np.int64)
