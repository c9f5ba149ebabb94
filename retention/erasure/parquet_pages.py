"""Every page of a Parquet file, decompressed: dictionaries with entries that no row has, and rows that vectors hide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_CODECS = {
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "BROTLI": "brotli",
    "ZSTD": "zstd",
    "LZ4": "lz4_raw",
    "LZ4_RAW": "lz4_raw",
}
_CONTIGUOUS = {
    "PLAIN",
    "PLAIN_DICTIONARY",
    "RLE_DICTIONARY",
    "RLE",
    "BIT_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
}
"""The encodings whose pages contain each value in one piece."""
_PAGE_TYPE, _DECODED_BYTES, _STORED_BYTES, _V2_HEADER = 1, 2, 3, 8
_DATA_PAGE_V2 = 3
_DEFINITION_BYTES, _REPETITION_BYTES, _IS_COMPRESSED = 5, 6, 7
_TRUE, _FALSE = 1, 2
_BOOLEANS = (_TRUE, _FALSE)
_LONG_LIST = 15
"""Thrift's types of booleans, and the length in a list's first byte that a longer length follows."""


def pages(file: pq.ParquetFile, source: pa.NativeFile) -> Iterator[bytes]:
    """The decompressed pages of every column of every row group.

    Raises:
        ValueError, OSError, ArrowException: a page cannot be decoded.
    """
    for group in range(file.metadata.num_row_groups):
        for number in range(file.metadata.num_columns):
            column = file.metadata.row_group(group).column(number)
            # A column without rows may have no data page, which has the offset 0 then.
            begins = (column.data_page_offset, column.dictionary_page_offset)
            source.seek(min((begin for begin in begins if begin), default=0))
            yield from _pages_of(source.read(column.total_compressed_size), column.compression)


def values(file: pq.ParquetFile) -> Iterator[pa.Array]:
    """The values of the columns whose pages do not contain each value in one piece, a batch at a time."""
    wanted = set()
    for group in range(file.metadata.num_row_groups):
        for number in range(file.metadata.num_columns):
            column = file.metadata.row_group(group).column(number)
            if not _CONTIGUOUS.issuperset(column.encodings):
                wanted.add(column.path_in_schema)
    if wanted:
        for batch in file.iter_batches(columns=sorted(wanted)):
            yield from batch.columns


def _pages_of(chunk: bytes, compression: str) -> Iterator[bytes]:
    codec = None if compression == "UNCOMPRESSED" else pa.Codec(_CODECS[compression])
    at = 0
    while at < len(chunk):
        header = CompactReader(chunk, at)
        fields = header.struct()
        begin, at = header.at, header.at + fields[_STORED_BYTES]
        if at > len(chunk):
            raise ValueError("a page is longer than its column")
        yield _decompressed(chunk[begin:at], fields, codec)


def _decompressed(body: bytes, fields: dict[int, Any], codec: pa.Codec | None) -> bytes:
    """A page's levels, which version 2 never compresses, and its values."""
    levels = 0
    if fields[_PAGE_TYPE] == _DATA_PAGE_V2:
        header = fields[_V2_HEADER]
        levels = header.get(_DEFINITION_BYTES, 0) + header.get(_REPETITION_BYTES, 0)
        codec = codec if header.get(_IS_COMPRESSED, True) else None
    if codec is None or len(body) == levels:
        return body
    if fields[_DECODED_BYTES] == levels:
        # Arrow cannot decompress a frame without content, as in a file without rows.
        return body[:levels]
    decoded = codec.decompress(body[levels:], fields[_DECODED_BYTES] - levels, asbytes=True)
    return body[:levels] + decoded


@dataclass
class CompactReader:
    """A reader of Thrift's compact protocol, in which page headers are written."""

    content: bytes
    at: int = 0

    def struct(self) -> dict[int, Any]:
        """The fields of a struct by number."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _BOOLEANS:
            return kind == _TRUE
        read = {
            3: self._byte,
            4: self._zigzag,
            5: self._zigzag,
            6: self._zigzag,
            7: lambda: self._bytes(8),
            8: lambda: self._bytes(self._varint()),
            9: self._list,
            10: self._list,
            12: self.struct,
        }.get(kind)
        if read is None:
            raise ValueError(f"a page header has type {kind}")
        return read()

    def _list(self) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._varint() if count == _LONG_LIST else count
        return [
            self._byte() == _TRUE if kind in _BOOLEANS else self._value(kind) for _ in range(count)
        ]

    def _byte(self) -> int:
        self.at += 1
        if self.at > len(self.content):
            raise ValueError("a page header is cut off")
        return self.content[self.at - 1]

    def _bytes(self, length: int) -> bytes:
        self.at += length
        return self.content[self.at - length : self.at]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift

    def _zigzag(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)
