"""The pages of a column chunk: every byte belongs to one, and each has the checksum of its content."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from retention.storage.row_groups.compact import Struct, read_struct
from retention.storage.row_groups.footer import UnknownLayoutError


class OfPage(IntEnum):
    """Fields of `PageHeader` in parquet.thrift."""

    TYPE = 1
    DECODED_BYTES = 2
    STORED_BYTES = 3
    CHECKSUM = 4
    DATA = 5
    DATA_V2 = 8


class OfData(IntEnum):
    """Fields of `DataPageHeader`; the number of values is the same one in a header of version 2."""

    VALUES = 1
    ENCODING = 2
    DEFINITION_LEVELS = 3
    REPETITION_LEVELS = 4
    STATISTICS = 5


PLAIN, RLE = 0, 3
"""The encodings of values, and of levels."""
DATA_PAGE = 0
_DICTIONARY, _DATA_V2 = 2, 3
_HEADERS = {DATA_PAGE: OfPage.DATA, _DATA_V2: OfPage.DATA_V2}


class PlainPage(NamedTuple):
    """A data page of version 1 with plain values, in its column chunk."""

    begin: int
    """The position of its content, which is compressed."""
    end: int
    values: int
    """The number of its values, nulls included."""
    decoded_bytes: int
    """The length of its content before compression."""
    checksum: int

    def check(self, chunk: memoryview) -> None:
        """Check its content.

        Raises:
            UnknownLayoutError: it has another checksum.
        """
        _check(chunk[self.begin : self.end], self.checksum)


def check_pages(chunk: memoryview, values: int) -> None:
    """Check all pages of a column chunk, without decompressing them.

    Args:
        chunk: its bytes.
        values: the number of its values, nulls included, by the footer.

    Raises:
        UnknownLayoutError: a page has no checksum or another one, or the pages are not the whole chunk.
    """
    for header, begin, end in _headers(chunk, values):
        _check(chunk[begin:end], _checksum(header))


def plain_pages(chunk: memoryview, values: int) -> list[PlainPage]:
    """The pages of a column chunk, if each has plain values of its own; their contents are not checked.

    Raises:
        UnknownLayoutError: a page has no checksum, or the pages are not the whole chunk; or one is a dictionary, needs
            one, or is a data page of version 2.
    """
    return [_plain_page(*each) for each in _headers(chunk, values)]


def count_plain_pages(chunk: memoryview, values: int) -> int:
    """Check all pages of a column chunk as `check_pages`; returns their number if each has plain values of its own.

    Raises:
        UnknownLayoutError: as `check_pages` and `plain_pages`.
    """
    pages = plain_pages(chunk, values)
    for page in pages:
        page.check(chunk)
    return len(pages)


def _headers(chunk: memoryview, values: int) -> Iterator[tuple[Struct, int, int]]:
    """The headers of pages, each with the bounds of the content after it."""
    at = counted = 0
    while at < len(chunk):
        try:
            header, begin = read_struct(chunk, at)
            at = begin + header[OfPage.STORED_BYTES].value
            _checksum(header)
            counted += _values_of(header)
        except (ValueError, KeyError, TypeError) as error:
            raise UnknownLayoutError("a page has no valid header with a checksum") from error
        if not begin <= at <= len(chunk):
            raise UnknownLayoutError("a page is longer than its column")
        yield header, begin, at
    if counted != values:
        raise UnknownLayoutError(f"the pages of a column have {counted} values, not {values}")


def _plain_page(header: Struct, begin: int, end: int) -> PlainPage:
    try:
        data, decoded = header[OfPage.DATA].value, header[OfPage.DECODED_BYTES].value
        is_plain = (data[OfData.ENCODING].value, data[OfData.DEFINITION_LEVELS].value) == (
            PLAIN,
            RLE,
        )
        count = data[OfData.VALUES].value
    except (KeyError, TypeError) as error:
        raise UnknownLayoutError("a page is no data page of version 1") from error
    if not is_plain:
        raise UnknownLayoutError("a page has no plain values")
    return PlainPage(begin, end, count, decoded, _checksum(header))


def _checksum(header: Struct) -> int:
    checksum: int = header[OfPage.CHECKSUM].value & 0xFFFFFFFF
    return checksum


def _check(content: memoryview, checksum: int) -> None:
    if zlib.crc32(content) != checksum:
        raise UnknownLayoutError("the checksum of a page is not that of its content")


def _values_of(header: Struct) -> int:
    """The values of a page; those of a dictionary do not count."""
    kind = header[OfPage.TYPE].value
    if kind == _DICTIONARY:
        return 0
    if kind not in _HEADERS:
        raise ValueError(f"a page has the unknown type {kind}")
    count: int = header[_HEADERS[kind]].value[OfData.VALUES].value
    return count
