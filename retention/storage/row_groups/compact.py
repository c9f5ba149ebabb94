"""Thrift's compact protocol without a schema: structs are read with all their fields, and written as they were."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias


class Kind(IntEnum):
    """The types of the protocol that Parquet uses."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    STRUCT = 12


class Field(NamedTuple):
    """A field of a struct, or an element of a list: its type, and its value."""

    kind: int
    """A `Kind`; either boolean for both."""
    value: Any
    """A bool, an int, the bytes of a double or a binary, a `ListValue`, or a `Struct`."""


Struct: TypeAlias = dict[int, Field]
"""The fields of a struct by number, ascending."""


@dataclass(frozen=True)
class ListValue:
    """A list or set."""

    kind: int
    """The type of its elements; either boolean for both."""
    values: list[Any]


_BOOLEANS = (Kind.TRUE, Kind.FALSE)
_SHORT = 15
"""The length in a list's first byte, and the step in a field's, that a longer one follows or replaces."""
_BITS, _LOW_BITS, _MORE = 64, 0x7F, 0x80
"""The bits of the longest number, those of a byte that are a part of it, and the one that another byte follows."""
_DEEPEST = 32
"""The deepest nesting that is read; Parquet's structs have less than ten levels."""


def read_struct(content: bytes | memoryview, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins at a position, and the position after it.

    Raises:
        ValueError: the bytes are no struct, or end before it does.
    """
    reader = _Reader(content, at)
    try:
        fields = reader.struct(0)
    except (IndexError, struct.error) as error:
        raise ValueError("a struct is cut off") from error
    return fields, reader.at


def struct_bytes(fields: Struct) -> bytes:
    """A struct in the protocol's only form of it.

    Raises:
        ValueError: a value is not of its type.
    """
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def read_varint(content: bytes | memoryview, at: int) -> tuple[int, int]:
    """The unsigned number that begins at a position, and the position after it.

    Raises:
        ValueError: it has more than 64 bits.
        IndexError: it is cut off.
    """
    reader = _Reader(content, at)
    return reader.varint(), reader.at


def varint_bytes(number: int) -> bytes:
    """An unsigned number."""
    out = bytearray()
    _write_varint(out, number)
    return bytes(out)


class _Reader:
    def __init__(self, content: bytes | memoryview, at: int) -> None:
        self._content = content
        self.at = at

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ValueError("structs are nested too deeply")
        fields: Struct = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._zigzag()
            if number in fields:
                raise ValueError(f"a struct has field {number} twice")
            value = kind == Kind.TRUE if kind in _BOOLEANS else self._value(kind, depth)
            fields[number] = Field(kind, value)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case Kind.I32 | Kind.I64 | Kind.I16:
                return self._zigzag()
            case Kind.BINARY:
                return self._bytes(self.varint())
            case Kind.STRUCT:
                return self.struct(depth + 1)
            case Kind.LIST | Kind.SET:
                return self._list(depth + 1)
            case Kind.BYTE:
                return self._byte()
            case Kind.DOUBLE:
                return self._bytes(8)
            case _:
                raise ValueError(f"a struct has a value of the unknown type {kind}")

    def _list(self, depth: int) -> ListValue:
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self.varint() if count == _SHORT else count
        if count > len(self._content) - self.at:
            raise ValueError("a list is longer than its file")
        if kind in _BOOLEANS:
            return ListValue(kind, [self._byte() == Kind.TRUE for _ in range(count)])
        return ListValue(kind, [self._value(kind, depth) for _ in range(count)])

    def _byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _bytes(self, length: int) -> bytes:
        begin, self.at = self.at, self.at + length
        if self.at > len(self._content):
            raise ValueError("a value is cut off")
        return bytes(self._content[begin : self.at])

    def varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & _MORE:
            number |= (byte & _LOW_BITS) << shift
            shift += 7
            if shift >= _BITS:
                raise ValueError("a number has more than 64 bits")
        return number | byte << shift

    def _zigzag(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)


def _write_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in _BOOLEANS:
            kind = Kind.TRUE if value else Kind.FALSE
        if 0 < number - before <= _SHORT:
            out.append(number - before << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, number)
        if kind not in _BOOLEANS:
            _write_value(out, kind, value)
        before = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    match kind:
        case Kind.I32 | Kind.I64 | Kind.I16:
            _write_zigzag(out, value)
        case Kind.BINARY:
            _write_varint(out, len(value))
            out += value
        case Kind.STRUCT:
            _write_struct(out, value)
        case Kind.LIST | Kind.SET:
            _write_list(out, value)
        case Kind.BYTE:
            out.append(value)
        case Kind.DOUBLE:
            out += value
        case _:
            raise ValueError(f"a value has the unknown type {kind}")


def _write_list(out: bytearray, value: ListValue) -> None:
    count = len(value.values)
    out.append(min(count, _SHORT) << 4 | value.kind)
    if count >= _SHORT:
        _write_varint(out, count)
    for element in value.values:
        if value.kind in _BOOLEANS:
            out.append(Kind.TRUE if element else Kind.FALSE)
        else:
            _write_value(out, value.kind, element)


def _write_zigzag(out: bytearray, number: int) -> None:
    _write_varint(out, (number << 1 ^ number >> 63) & (1 << 64) - 1)


def _write_varint(out: bytearray, number: int) -> None:
    while number > _LOW_BITS:
        out.append(number & _LOW_BITS | _MORE)
        number >>= 7
    out.append(number)
