"""A column chunk made of the plain data pages of several others, in place of one in a row group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import xxhash

from retention.storage.row_groups.compact import Field, Kind, ListValue
from retention.storage.row_groups.footer import OfChunk, OfColumn, OfGroup
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
_PLAIN, _RLE = 0, 3
_DATA_PAGE = 0


@dataclass(frozen=True)
class PlainPages:
    """Data pages of a column with plain values, as they are stored."""

    content: pa.Buffer
    count: int
    decoded_bytes: int
    """Their length before compression, headers included."""


def digest_of_pages(contents: Iterable[pa.Buffer]) -> str:
    """The XXH3 of successive stored pages, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for content in contents:
        digest.update(memoryview(content))
    return digest.hexdigest()


def with_pages(group: StoredGroup, column: int, pages: Sequence[PlainPages]) -> StoredGroup:
    """A row group whose column with that number has other pages, with as many values as the row group has rows.

    The pages must be compressed as those that they replace. The new column has neither statistics nor indexes.
    """
    old = group.chunks[column]
    content = pa.py_buffer(b"".join(each.content for each in pages))
    chunk = StoredChunk(_described(old, pages, len(content), group.rows), old.begin, content)
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


def _described(
    old: StoredChunk, pages: Sequence[PlainPages], stored_bytes: int, rows: int
) -> dict[int, Field]:
    """`ColumnChunk` of the new pages, which begin where the old ones did."""
    count = sum(each.count for each in pages)
    encodings = {1: _DATA_PAGE, 2: _PLAIN, 3: count}
    numbers = {
        OfColumn.VALUES: rows,
        OfColumn.DECODED_BYTES: sum(each.decoded_bytes for each in pages),
        OfColumn.STORED_BYTES: stored_bytes,
        OfColumn.DATA_OFFSET: old.begin,
    }
    column = {
        number: field
        for number, field in old.fields[OfChunk.METADATA].value.items()
        if number not in _UNKNOWN
    }
    column |= {int(number): Field(Kind.I64, value) for number, value in numbers.items()}
    column |= {
        _ENCODINGS: Field(Kind.LIST, ListValue(Kind.I32, [_RLE, _PLAIN])),
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
