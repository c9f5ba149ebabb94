"""A Parquet file of row groups that exist as bytes: pages are written as they are, and offsets are moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from retention.storage.row_groups.compact import Field, Kind, ListValue, Struct, struct_bytes
from retention.storage.row_groups.footer import (
    MAGIC,
    OfChunk,
    OfColumn,
    OfGroup,
    footer_bytes,
)
from retention.storage.row_groups.plain_chunk import PageTotals, PlainPages, with_pages
from retention.storage.row_groups.stored_group import StoredChunk, StoredGroup, shifted

_LAST_ORDINAL = 2**15 - 1


@dataclass
class _Placed:
    """A column chunk with written pages."""

    fields: Struct
    """`ColumnChunk` with its offsets in the new file."""
    column_index: bytes | None
    offset_index: Struct | None
    bloom_filter: bytes | None

    @classmethod
    def of(cls, chunk: StoredChunk, by: int) -> _Placed:
        """A chunk with pages that were written this many bytes later."""
        return cls(
            chunk.moved(by), chunk.column_index, chunk.moved_offset_index(by), chunk.bloom_filter
        )


class JoinedFile:
    """A Parquet file in writing: row groups in order, then their Bloom filters and page indexes, then the footer."""

    def __init__(self, sink: Any) -> None:
        """Begin the file.

        Args:
            sink: open for writing, and empty.
        """
        self._sink = sink
        self._at = 0
        self._groups: list[tuple[Struct, list[_Placed]]] = []
        self._write(MAGIC)

    def add(self, group: StoredGroup) -> int:
        """Write the pages of a row group, and return its number; its indexes and Bloom filters remain in memory."""
        begins = [self._write_all([chunk.pages]) for chunk in group.chunks]
        return self._place(group, begins)

    def add_with_pages(self, group: StoredGroup, column: int, pages: Iterable[PlainPages]) -> int:
        """Write a row group with other pages for the column with that number, and return its number.

        Args:
            group: the row group.
            column: its column.
            pages: the pages, each written before the next is asked for; see `with_pages`.
        """
        totals = PageTotals()
        begins = [
            self._write_all(totals.counting(pages) if number == column else [chunk.pages])
            for number, chunk in enumerate(group.chunks)
        ]
        return self._place(with_pages(group, column, totals), begins)

    def finish(self, footer: Struct) -> None:
        """Write the indexes of all row groups, and a footer.

        Args:
            footer: `FileMetaData` with the schema of all row groups; its row groups and rows are replaced.
        """
        chunks = [chunk for _, placed in self._groups for chunk in placed]
        for chunk in chunks:
            self._write_bloom_filter(chunk)
        for chunk in chunks:
            if chunk.column_index is not None:
                self._write_index(
                    chunk,
                    chunk.column_index,
                    OfChunk.COLUMN_INDEX_OFFSET,
                    OfChunk.COLUMN_INDEX_BYTES,
                )
        for chunk in chunks:
            if chunk.offset_index is not None:
                self._write_index(
                    chunk,
                    struct_bytes(chunk.offset_index),
                    OfChunk.OFFSET_INDEX_OFFSET,
                    OfChunk.OFFSET_INDEX_BYTES,
                )
        groups = [
            group | {OfGroup.COLUMNS: _structs([chunk.fields for chunk in placed])}
            for group, placed in self._groups
        ]
        self._write(footer_bytes(footer, groups))

    def _write_all(self, parts: Iterable[pa.Buffer]) -> int:
        """Write the pages of a column, and return the offset at which they begin."""
        begin = self._at
        for part in parts:
            self._write(part)
        return begin

    def _place(self, group: StoredGroup, begins: Sequence[int]) -> int:
        """Note a row group whose columns begin at these offsets, and return its number."""
        placed = [
            _Placed.of(chunk, begin - chunk.begin)
            for chunk, begin in zip(group.chunks, begins, strict=True)
        ]
        number = len(self._groups)
        self._groups.append((_moved(group, min(begins, default=self._at), number), placed))
        return number

    def _write_bloom_filter(self, chunk: _Placed) -> None:
        if chunk.bloom_filter is None:
            return
        column = chunk.fields[OfChunk.METADATA].value | {
            OfColumn.BLOOM_OFFSET: Field(Kind.I64, self._at),
            OfColumn.BLOOM_BYTES: Field(Kind.I32, len(chunk.bloom_filter)),
        }
        chunk.fields = chunk.fields | {OfChunk.METADATA: Field(Kind.STRUCT, column)}
        self._write(chunk.bloom_filter)

    def _write_index(self, chunk: _Placed, content: bytes, offset: int, length: int) -> None:
        chunk.fields = chunk.fields | {
            offset: Field(Kind.I64, self._at),
            length: Field(Kind.I32, len(content)),
        }
        self._write(content)

    def _write(self, content: Any) -> None:
        self._sink.write(content)
        self._at += len(content)


def _moved(group: StoredGroup, first: int, number: int) -> Struct:
    """`RowGroup` at another place, with another number; its columns are replaced when the file is finished."""
    fields = shifted(group.fields, first - group.begin, OfGroup.FILE_OFFSET)
    if OfGroup.ORDINAL in fields:
        fields = {key: field for key, field in fields.items() if key != OfGroup.ORDINAL}
        if number <= _LAST_ORDINAL:
            fields[OfGroup.ORDINAL] = Field(Kind.I16, number)
    return fields


def _structs(values: list[Struct]) -> Field:
    return Field(Kind.LIST, ListValue(Kind.STRUCT, values))
