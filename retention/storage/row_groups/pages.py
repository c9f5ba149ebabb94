"""The pages of a column chunk: every byte belongs to one, and each has the checksum of its content."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum

from retention.storage.row_groups.compact import Struct, read_struct
from retention.storage.row_groups.footer import UnknownLayoutError


class _OfPage(IntEnum):
    """Fields of `PageHeader` in parquet.thrift."""

    TYPE = 1
    STORED_BYTES = 3
    CHECKSUM = 4
    DATA = 5
    DATA_V2 = 8


_VALUES, _ENCODING = 1, 2
"""The fields of a data page's header with the number of its values, in either version, and with their encoding."""
_PLAIN = 0
_DATA, _DATA_V2 = 0, 3
_DICTIONARY = 2
_HEADERS = {_DATA: _OfPage.DATA, _DATA_V2: _OfPage.DATA_V2}


def check_pages(chunk: memoryview, values: int) -> None:
    """Check all pages of a column chunk, without decompressing them.

    Args:
        chunk: its bytes.
        values: the number of its values, nulls included, by the footer.

    Raises:
        UnknownLayoutError: a page has no checksum or another one, or the pages are not the whole chunk.
    """
    for _ in _checked_headers(chunk, values):
        pass


def count_plain_pages(chunk: memoryview, values: int) -> int:
    """Check all pages of a column chunk as `check_pages`; returns their number if each has plain values of its own.

    Raises:
        UnknownLayoutError: as `check_pages`; or a page is a dictionary, needs one, or is a data page of version 2.
    """
    headers = list(_checked_headers(chunk, values))
    for header in headers:
        data = header.get(_OfPage.DATA)
        if data is None or data.value[_ENCODING].value != _PLAIN:
            raise UnknownLayoutError("a page has no plain values")
    return len(headers)


def _checked_headers(chunk: memoryview, values: int) -> Iterator[Struct]:
    at = counted = 0
    while at < len(chunk):
        try:
            header, begin = read_struct(chunk, at)
            at = begin + header[_OfPage.STORED_BYTES].value
            expected = header[_OfPage.CHECKSUM].value & 0xFFFFFFFF
            counted += _values_of(header)
        except (ValueError, KeyError, TypeError) as error:
            raise UnknownLayoutError("a page has no valid header with a checksum") from error
        if not begin <= at <= len(chunk):
            raise UnknownLayoutError("a page is longer than its column")
        if zlib.crc32(chunk[begin:at]) != expected:
            raise UnknownLayoutError("the checksum of a page is not that of its content")
        yield header
    if counted != values:
        raise UnknownLayoutError(f"the pages of a column have {counted} values, not {values}")


def _values_of(header: Struct) -> int:
    """The values of a page; those of a dictionary do not count."""
    kind = header[_OfPage.TYPE].value
    if kind == _DICTIONARY:
        return 0
    if kind not in _HEADERS:
        raise ValueError(f"a page has the unknown type {kind}")
    count: int = header[_HEADERS[kind]].value[_VALUES].value
    return count
