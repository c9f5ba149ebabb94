"""A column chunk made of the plain data pages of several others, in place of one in a row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import xxhash

from retention.storage.row_groups.compact import Field, Kind, ListValue
from retention.storage.row_groups.footer import OfChunk, OfColumn, OfGroup
from retention.storage.row_groups.pages import DATA_PAGE, PLAIN, RLE
from retention.storage.row_groups.stored_group import StoredChunk, StoredGroup

_ENCODINGS, _STATISTICS, _ENCODING_STATISTICS, _SIZE_STATISTICS = 2, 12, 13, 16
"""Fields of `ColumnMetaData` that describe its values or its pages."""
_UNKNOWN = (
    OfColumn.INDEX_PAGE_OFFSET,
    OfColumn.DICTIONARY_OFFSET,
    _STATISTICS,
    OfColumn.BLOOM_OFFSET,
    OfColumn.BLOOM_BYTES,
    _SIZE_STATISTICS,
)
"""Optional fields that do not hold for other pages."""


@dataclass(frozen=True)
class PlainPages:
    """Data pages of a column with plain values, as they are stored."""

    parts: Sequence[pa.Buffer]
    """Their bytes."""
    count: int
    decoded_bytes: int
    """Their length before compression, headers included."""


@dataclass
class PageTotals:
    """The number and the lengths of pages, counted while they pass."""

    count: int = 0
    decoded_bytes: int = 0
    stored_bytes: int = 0

    def counting(self, pages: Iterable[PlainPages]) -> Iterator[pa.Buffer]:
        """Pass on the bytes of pages, and count them."""
        for each in pages:
            self.count += each.count
            self.decoded_bytes += each.decoded_bytes
            self.stored_bytes += sum(part.size for part in each.parts)
            yield from each.parts


def digest_of_pages(parts: Iterable[pa.Buffer]) -> str:
    """The XXH3 of successive stored pages, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(memoryview(part))
    return digest.hexdigest()


def with_pages(group: StoredGroup, column: int, pages: PageTotals) -> StoredGroup:
    """A row group that describes other pages for the column with that number, and has none for it in memory.

    The pages have as many values as the row group has rows, and are compressed as those that they replace. The new
    column has neither statistics nor indexes.
    """
    old = group.chunks[column]
    chunk = StoredChunk(_described(old, pages, group.rows), old.begin, pa.py_buffer(b""))
    before = old.fields[OfChunk.METADATA].value
    after = chunk.fields[OfChunk.METADATA].value
    chunks = (*group.chunks[:column], chunk, *group.chunks[column + 1 :])
    grown = {
        OfGroup.BYTES: OfColumn.DECODED_BYTES,
        OfGroup.STORED_BYTES: OfColumn.STORED_BYTES,
    }
    sizes = {
        total: Field(Kind.I64, group.fields[total].value + after[part].value - before[part].value)
        for total, part in grown.items()
        if total in group.fields
    }
    return replace(group, fields=group.fields | sizes, chunks=chunks)


def _described(old: StoredChunk, pages: PageTotals, rows: int) -> dict[int, Field]:
    """`ColumnChunk` of the new pages, which begin where the old ones did."""
    encodings = {1: DATA_PAGE, 2: PLAIN, 3: pages.count}
    numbers = {
        OfColumn.VALUES: rows,
        OfColumn.DECODED_BYTES: pages.decoded_bytes,
        OfColumn.STORED_BYTES: pages.stored_bytes,
        OfColumn.DATA_OFFSET: old.begin,
    }
    column = {
        number: field
        for number, field in old.fields[OfChunk.METADATA].value.items()
        if number not in _UNKNOWN
    }
    column |= {int(number): Field(Kind.I64, value) for number, value in numbers.items()}
    column |= {
        _ENCODINGS: Field(Kind.LIST, ListValue(Kind.I32, [RLE, PLAIN])),
        _ENCODING_STATISTICS: Field(
            Kind.LIST,
            ListValue(
                Kind.STRUCT,
                [{number: Field(Kind.I32, value) for number, value in encodings.items()}],
            ),
        ),
    }
    return {
        OfChunk.FILE_OFFSET: old.fields[OfChunk.FILE_OFFSET],
        OfChunk.METADATA: Field(Kind.STRUCT, dict(sorted(column.items()))),
    }
