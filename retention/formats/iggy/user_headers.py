"""User headers of Iggy messages: builds and parses pairs of typed keys and values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Value = bytes | str | bool | int | float

_LENGTH = struct.Struct("<I")
_PREFIX_BYTES = 5
_MOST_BYTES = 255


@dataclass(frozen=True)
class Typed:
    """A key or a value in its stored form."""

    kind: str
    """Iggy's name: `raw`, `string`, `bool`, `int8` to `int128`, `uint8` to `uint128`, `float32`, `float64`."""
    content: bytes

    @property
    def value(self) -> Value:
        """The content as a value of its kind."""
        return _READ[self.kind](self.content)

    @property
    def text(self) -> str:
        """The value as human-readable text; bytes in hexadecimal."""
        value = self.value
        return value.hex() if isinstance(value, bytes) else str(value)


def parse(block: bytes) -> list[tuple[Typed, Typed]]:
    """Parse a block into pairs in their order; servers of both eras use the same form.

    Raises:
        ValueError: the block ends within a pair, or a kind, a length or a value is impossible.
    """
    items, at = [], 0
    while at < len(block):
        items.append(_typed(block, at))
        at += _PREFIX_BYTES + len(items[-1].content)
    if len(items) % 2:
        raise ValueError(f"the user headers end with the key {items[-1].text!r}, without a value")
    return list(zip(items[::2], items[1::2], strict=True))


def build(pairs: Iterable[tuple[Typed, Typed]]) -> bytes:
    """Build the block of pairs, in their order; empty without pairs.

    Raises:
        ValueError: a key or a value is impossible, or a key occurs twice.
    """
    given = list(pairs)
    keys = [key for key, _ in given]
    if len(set(keys)) < len(keys):
        raise ValueError(f"the user header {max(keys, key=keys.count).text!r} occurs twice")
    block = b"".join(_packed(item) for pair in given for item in pair)
    parse(block)
    return block


def typed_of(value: Value) -> Typed:
    """The value with its kind: raw, string, bool, int64 (int128 if 64 bits do not suffice), or float64.

    Raises:
        ValueError: the value is an integer of more than 128 bits.
    """
    match value:
        case bytes():
            return Typed("raw", value)
        case str():
            return Typed("string", value.encode())
        case bool():
            return Typed("bool", bytes([value]))
        case int():
            return _whole(value)
        case float():
            return Typed("float64", struct.pack("<d", value))


def _whole(value: int) -> Typed:
    length = 8 if -(2**63) <= value < 2**63 else 16
    try:
        content = value.to_bytes(length, "little", signed=True)
    except OverflowError as error:
        raise ValueError(f"{value} has more than 128 bits") from error
    return Typed(f"int{length * 8}", content)


def is_valid(block: bytes) -> bool:
    """Whether a block can be parsed."""
    try:
        parse(block)
    except ValueError:
        return False
    return True


def _typed(block: bytes, at: int) -> Typed:
    if at + _PREFIX_BYTES > len(block):
        raise ValueError(f"the user headers end within the length at byte {at}")
    kind, length = block[at], _LENGTH.unpack_from(block, at + 1)[0]
    content = block[at + _PREFIX_BYTES : at + _PREFIX_BYTES + length]
    if not 1 <= length <= _MOST_BYTES or len(content) < length:
        raise ValueError(f"the user headers claim {length} bytes at byte {at}")
    name, wanted = _KINDS.get(kind, ("", None))
    if not name:
        raise ValueError(f"the user headers have an unknown kind, {kind}, at byte {at}")
    if wanted not in (None, length):
        raise ValueError(f"the user headers have a {name} of {length} bytes at byte {at}")
    if name == "string":
        content.decode()
    return Typed(name, content)


def _packed(item: Typed) -> bytes:
    if item.kind not in _CODES:
        raise ValueError(f"{item.kind!r} is not a kind; known are {', '.join(_CODES)}")
    return bytes([_CODES[item.kind]]) + _LENGTH.pack(len(item.content)) + item.content


def _signed(content: bytes) -> int:
    return int.from_bytes(content, "little", signed=True)


def _unsigned(content: bytes) -> int:
    return int.from_bytes(content, "little")


def _float(content: bytes) -> float:
    return float(struct.unpack("<f" if len(content) == _LENGTH.size else "<d", content)[0])


_BITS = (8, 16, 32, 64, 128)
_KINDS: dict[int, tuple[str, int | None]] = {
    1: ("raw", None),
    2: ("string", None),
    3: ("bool", 1),
    **{4 + nth: (f"int{bits}", bits // 8) for nth, bits in enumerate(_BITS)},
    **{9 + nth: (f"uint{bits}", bits // 8) for nth, bits in enumerate(_BITS)},
    14: ("float32", 4),
    15: ("float64", 8),
}
"""Code of a kind → its name, and the bytes of its values (None for any number)."""
_CODES = {name: code for code, (name, _) in _KINDS.items()}
_READ: dict[str, Callable[[bytes], Value]] = {
    "raw": bytes,
    "string": bytes.decode,
    "bool": any,
    **{f"int{bits}": _signed for bits in _BITS},
    **{f"uint{bits}": _unsigned for bits in _BITS},
    "float32": _float,
    "float64": _float,
}
