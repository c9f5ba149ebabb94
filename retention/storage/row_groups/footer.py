"""The footer of a Parquet file: read with every field, refused if a copy could not keep one right, and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from retention.storage.row_groups.compact import (
    Field,
    Kind,
    ListValue,
    Struct,
    read_struct,
    struct_bytes,
)

MAGIC = b"PAR1"
_TAIL_BYTES = 64 << 10
"""The bytes that are read first: most footers end in them."""
_SUFFIX = 4 + len(MAGIC)


class OfFile(IntEnum):
    """Fields of `FileMetaData` in parquet.thrift."""

    SCHEMA = 2
    ROWS = 3
    GROUPS = 4
    CREATED_BY = 6
    COLUMN_ORDERS = 7


class OfGroup(IntEnum):
    """Fields of `RowGroup`."""

    COLUMNS = 1
    BYTES = 2
    ROWS = 3
    FILE_OFFSET = 5
    STORED_BYTES = 6
    ORDINAL = 7


class OfChunk(IntEnum):
    """Fields of `ColumnChunk`."""

    FILE_OFFSET = 2
    METADATA = 3
    OFFSET_INDEX_OFFSET = 4
    OFFSET_INDEX_BYTES = 5
    COLUMN_INDEX_OFFSET = 6
    COLUMN_INDEX_BYTES = 7


class OfColumn(IntEnum):
    """Fields of `ColumnMetaData`."""

    VALUES = 5
    DECODED_BYTES = 6
    STORED_BYTES = 7
    DATA_OFFSET = 9
    INDEX_PAGE_OFFSET = 10
    DICTIONARY_OFFSET = 11
    BLOOM_OFFSET = 14
    BLOOM_BYTES = 15


_KNOWN_OF_FILE = frozenset(range(1, 8))
"""All but those of encryption: 8 is the algorithm, 9 the key of a signed footer."""
_KNOWN_OF_GROUP = frozenset(range(1, 8))
_KNOWN_OF_CHUNK = frozenset(range(2, 8))
"""All but `file_path`, which names another file, and those of encryption."""
_KNOWN_OF_COLUMN = frozenset(range(1, 18))


class UnknownLayoutError(ValueError):
    """A Parquet file whose row groups cannot be copied as bytes: it is cut off, encrypted, or newer than this code."""


@dataclass(frozen=True)
class Footer:
    """The footer of a Parquet file."""

    fields: Struct
    """`FileMetaData`."""
    begin: int
    """Its offset: all pages and indexes are before it."""

    @property
    def groups(self) -> list[Struct]:
        """The row groups, `RowGroup`."""
        return list(self.fields[OfFile.GROUPS].value.values)

    @property
    def created_by(self) -> str:
        """The name and version of the writer; empty if it has none."""
        field = self.fields.get(OfFile.CREATED_BY)
        return "" if field is None else field.value.decode("utf-8", "replace")

    @property
    def shape(self) -> tuple[Field | None, ...]:
        """The schema and the order of its values; row groups of files with equal shapes can be in one file."""
        return tuple(self.fields.get(number) for number in (OfFile.SCHEMA, OfFile.COLUMN_ORDERS))


def read_footer(source: pa.NativeFile) -> Footer:
    """Read the footer of an open file.

    Raises:
        UnknownLayoutError: it has none, is encrypted, or has fields that this code does not know.
        OSError: the storage failed.
    """
    size = source.size()
    tail = _read(source, max(size - _TAIL_BYTES, 0), min(size, _TAIL_BYTES))
    if len(tail) < _SUFFIX or tail[-len(MAGIC) :] != MAGIC:
        raise UnknownLayoutError("the file does not end as a Parquet file")
    length = int.from_bytes(tail[-_SUFFIX : -len(MAGIC)], "little")
    begin = size - _SUFFIX - length
    if begin < len(MAGIC):
        raise UnknownLayoutError("the footer is longer than the file")
    if length + _SUFFIX > len(tail):
        tail = _read(source, begin, length + _SUFFIX)
    content = tail[len(tail) - _SUFFIX - length : -_SUFFIX]
    try:
        fields, end = read_struct(content)
    except ValueError as error:
        raise UnknownLayoutError(str(error)) from error
    if end != length:
        raise UnknownLayoutError("the footer is shorter than its length")
    _check(fields)
    return Footer(fields, begin)


def footer_bytes(fields: Struct, groups: Sequence[Struct]) -> bytes:
    """The end of a Parquet file: a footer like another, with these row groups."""
    rows = sum(group[OfGroup.ROWS].value for group in groups)
    content = struct_bytes(
        fields
        | {
            OfFile.ROWS: Field(Kind.I64, rows),
            OfFile.GROUPS: Field(Kind.LIST, ListValue(Kind.STRUCT, list(groups))),
        }
    )
    return content + len(content).to_bytes(4, "little") + MAGIC


def chunks_of(group: Struct) -> list[Struct]:
    """The column chunks of a row group, `ColumnChunk`."""
    return list(group[OfGroup.COLUMNS].value.values)


def _read(source: pa.NativeFile, begin: int, length: int) -> bytes:
    source.seek(begin)
    content: bytes = source.read(length)
    return content


def _check(fields: Struct) -> None:
    """Check every struct that contains offsets for fields that this code does not know.

    Raises:
        UnknownLayoutError: there is one, or a required one is missing or of another type.
    """
    _only(fields, _KNOWN_OF_FILE, "the footer")
    _require(fields, {OfFile.ROWS: int, OfFile.GROUPS: ListValue, OfFile.SCHEMA: ListValue})
    for group in _structs(fields[OfFile.GROUPS].value):
        _only(group, _KNOWN_OF_GROUP, "a row group")
        _require(group, {OfGroup.COLUMNS: ListValue, OfGroup.ROWS: int})
        for chunk in _structs(group[OfGroup.COLUMNS].value):
            _only(chunk, _KNOWN_OF_CHUNK, "a column")
            _require(chunk, {OfChunk.METADATA: dict})
            column = chunk[OfChunk.METADATA].value
            _only(column, _KNOWN_OF_COLUMN, "the description of a column")
            _require(column, dict.fromkeys((OfColumn.VALUES, OfColumn.STORED_BYTES), int))
            _check_numbers(chunk, set(OfChunk) - {OfChunk.METADATA})
            _check_numbers(column, set(OfColumn))


def _structs(values: ListValue) -> Iterator[Struct]:
    for value in values.values:
        if not isinstance(value, dict):
            raise UnknownLayoutError("the footer has a value where a struct belongs")
        yield value


def _check_numbers(fields: Struct, numbers: set[Any]) -> None:
    for number in numbers & fields.keys():
        if not isinstance(fields[number].value, int):
            raise UnknownLayoutError(f"field {int(number)} of a column is no number")


def _only(fields: Struct, known: frozenset[int], where: str) -> None:
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise UnknownLayoutError(f"{where} has the unsupported field {unknown[0]}")


def _require(fields: Struct, types: dict[Any, type]) -> None:
    for number, type_ in types.items():
        if number not in fields or not isinstance(fields[number].value, type_):
            raise UnknownLayoutError(f"the footer lacks field {int(number)} of a struct")
