"""Every page of a Parquet file, decompressed: dictionaries with entries that no row has, and rows that vectors hide."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from retention.storage.row_groups.compact import Struct, read_struct

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
"""Fields of `PageHeader` and `DataPageHeaderV2` in parquet.thrift, and the type of a page with the second."""


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
        fields, begin = read_struct(chunk, at)
        at = begin + fields[_STORED_BYTES].value
        if at > len(chunk):
            raise ValueError("a page is longer than its column")
        yield _decompressed(chunk[begin:at], fields, codec)


def _decompressed(body: bytes, fields: Struct, codec: pa.Codec | None) -> bytes:
    """A page's levels, which version 2 never compresses, and its values."""
    levels = 0
    if fields[_PAGE_TYPE].value == _DATA_PAGE_V2:
        header = {number: field.value for number, field in fields[_V2_HEADER].value.items()}
        levels = header.get(_DEFINITION_BYTES, 0) + header.get(_REPETITION_BYTES, 0)
        codec = codec if header.get(_IS_COMPRESSED, True) else None
    if codec is None or len(body) == levels:
        return body
    if fields[_DECODED_BYTES].value == levels:
        # Arrow cannot decompress a frame without content, as in a file without rows.
        return body[:levels]
    decoded = codec.decompress(body[levels:], fields[_DECODED_BYTES].value - levels, asbytes=True)
    return body[:levels] + decoded
