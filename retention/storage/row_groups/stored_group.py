"""A row group of a Parquet file as bytes: loaded with its indexes and Bloom filters, and moved to other offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from retention.storage.row_groups.compact import Field, Kind, ListValue, Struct, read_struct
from retention.storage.row_groups.footer import (
    MAGIC,
    Footer,
    OfChunk,
    OfColumn,
    OfGroup,
    UnknownLayoutError,
    chunks_of,
)
from retention.storage.row_groups.pages import check_pages

_OFFSETS_OF_PAGES = (
    OfColumn.DATA_OFFSET,
    OfColumn.INDEX_PAGE_OFFSET,
    OfColumn.DICTIONARY_OFFSET,
)
_FILTER_BYTES = 1
"""The field of a Bloom filter's header with the length of the filter after it."""
_LOCATIONS, _LOCATION_OFFSET = 1, 1
"""The field of an offset index with its pages, and that of a page with its offset."""
_HEADER_BYTES = 256
"""More than the header of a Bloom filter takes."""


@dataclass(frozen=True)
class StoredChunk:
    """A column of a row group as bytes."""

    fields: Struct
    """`ColumnChunk`, with the offsets of its file."""
    begin: int
    pages: pa.Buffer
    """All its pages, the dictionary included."""
    column_index: bytes | None = None
    offset_index: Struct | None = None
    bloom_filter: bytes | None = None

    def moved(self, by: int) -> Struct:
        """`ColumnChunk` with the pages this many bytes later; indexes and Bloom filter are not set."""
        fields = {
            number: field
            for number, field in self.fields.items()
            if number in (OfChunk.FILE_OFFSET, OfChunk.METADATA)
        }
        return shifted(fields, by, OfChunk.FILE_OFFSET) | {
            OfChunk.METADATA: Field(
                Kind.STRUCT, shifted(fields[OfChunk.METADATA].value, by, *_OFFSETS_OF_PAGES)
            )
        }

    def moved_offset_index(self, by: int) -> Struct | None:
        """The offset index with the pages this many bytes later."""
        if self.offset_index is None:
            return None
        locations = self.offset_index[_LOCATIONS].value
        moved = [shifted(location, by, _LOCATION_OFFSET) for location in locations.values]
        return self.offset_index | {
            _LOCATIONS: Field(Kind.LIST, ListValue(locations.kind, moved)),
        }


@dataclass(frozen=True)
class StoredGroup:
    """A row group as bytes."""

    fields: Struct
    """`RowGroup`, with the offsets of its file."""
    chunks: tuple[StoredChunk, ...]

    @property
    def begin(self) -> int:
        """The offset of its first page."""
        return min((chunk.begin for chunk in self.chunks), default=0)

    @property
    def rows(self) -> int:
        """The number of its rows."""
        rows: int = self.fields[OfGroup.ROWS].value
        return rows

    @property
    def digest(self) -> str:
        """The XXH3 of its pages, in hexadecimal; it does not depend on their place in a file."""
        digest = xxhash.xxh3_128()
        for chunk in self.chunks:
            digest.update(memoryview(chunk.pages))
        return digest.hexdigest()


def load_group(source: pa.NativeFile, footer: Footer, number: int) -> StoredGroup:
    """Load a row group of an open file; all of its bytes are in memory.

    Raises:
        UnknownLayoutError: its footer contradicts the file.
        OSError: the storage failed.
    """
    fields = footer.groups[number]
    chunks = tuple(_load_chunk(source, footer.begin, chunk) for chunk in chunks_of(fields))
    return StoredGroup(fields, chunks)


def load_pages(source: pa.NativeFile, footer: Footer, number: int, column: int) -> pa.Buffer:
    """Load the pages of one column of a row group.

    Raises:
        UnknownLayoutError, OSError: as `load_group`.
    """
    return _load_chunk(source, footer.begin, chunks_of(footer.groups[number])[column]).pages


def check_group(group: StoredGroup) -> None:
    """Check every page of a row group against its checksum.

    Raises:
        UnknownLayoutError: a page has none, or another one; or the footer counts other values.
    """
    for chunk in group.chunks:
        check_pages(
            memoryview(chunk.pages), chunk.fields[OfChunk.METADATA].value[OfColumn.VALUES].value
        )


def shifted(fields: Struct, by: int, *offsets: int) -> Struct:
    """A struct with offsets this many bytes later; an offset of 0 says that there is none."""
    moved = {
        number: Field(fields[number].kind, fields[number].value + by)
        for number in offsets
        if number in fields and fields[number].value
    }
    return fields | moved


def _load_chunk(source: pa.NativeFile, end: int, fields: Struct) -> StoredChunk:
    column = fields[OfChunk.METADATA].value
    begins = [offset for offset in _numbers(column, _OFFSETS_OF_PAGES) if offset]
    begin, length = min(begins, default=0), column[OfColumn.STORED_BYTES].value
    if max(begins, default=0) > begin + max(length - 1, 0):
        raise UnknownLayoutError("a page begins after its column")
    return StoredChunk(
        fields,
        begin,
        _read(source, begin, length, end),
        _index(source, end, fields, OfChunk.COLUMN_INDEX_OFFSET, OfChunk.COLUMN_INDEX_BYTES),
        _offset_index(source, end, fields, begin, length),
        _bloom_filter(source, end, column),
    )


def _numbers(fields: Mapping[int, Field], wanted: tuple[int, ...]) -> Iterator[int]:
    for number in wanted:
        if number in fields:
            yield fields[number].value


def _read(source: pa.NativeFile, begin: int, length: int, end: int) -> pa.Buffer:
    """Bytes of the part of a file that has pages and indexes."""
    if not len(MAGIC) <= begin <= begin + length <= end:
        raise UnknownLayoutError("a column lies outside its file")
    source.seek(begin)
    content = source.read_buffer(length)
    if content.size != length:
        raise UnknownLayoutError("the file is cut off")
    return content


def _index(
    source: pa.NativeFile, end: int, fields: Struct, offset: OfChunk, length: OfChunk
) -> bytes | None:
    if offset not in fields:
        return None
    if length not in fields:
        raise UnknownLayoutError("a page index has no length")
    return _read(source, fields[offset].value, fields[length].value, end).to_pybytes()


def _offset_index(
    source: pa.NativeFile, end: int, fields: Struct, begin: int, length: int
) -> Struct | None:
    content = _index(source, end, fields, OfChunk.OFFSET_INDEX_OFFSET, OfChunk.OFFSET_INDEX_BYTES)
    if content is None:
        return None
    try:
        index, _ = read_struct(content)
        pages = [page[_LOCATION_OFFSET].value for page in index[_LOCATIONS].value.values]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownLayoutError("a page index cannot be read") from error
    if not all(begin <= page < begin + length for page in pages):
        raise UnknownLayoutError("a page index has a page outside its column")
    return index


def _bloom_filter(source: pa.NativeFile, end: int, column: Struct) -> bytes | None:
    """The header and the bits of a Bloom filter; old writers do not say how long they are together."""
    if OfColumn.BLOOM_OFFSET not in column:
        return None
    begin = column[OfColumn.BLOOM_OFFSET].value
    if OfColumn.BLOOM_BYTES in column:
        length = column[OfColumn.BLOOM_BYTES].value
    else:
        head = _read(source, begin, min(_HEADER_BYTES, end - begin), end)
        try:
            header, after = read_struct(memoryview(head))
            length = after + header[_FILTER_BYTES].value
        except (ValueError, KeyError) as error:
            raise UnknownLayoutError("a Bloom filter cannot be read") from error
    return _read(source, begin, length, end).to_pybytes()
