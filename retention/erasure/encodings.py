"""The forms in which a string may lie in a file that this engine, Delta or a broker's tools wrote."""

from __future__ import annotations

import base64
import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa

MIN_BYTES = 12
"""The shortest string that is searched; shorter ones occur by chance."""
MAX_GROWTH = 12
"""The most bytes that one byte of a string takes in any form: `\\\\u0000`, an escape escaped again, or `%252525`."""
MAX_DEPTH = 2
"""The number of times that escapes are undone: the log of a table has JSON within JSON, and paths escaped twice."""

_FIRST_WHOLE_CHAR = (0, 2, 3)
"""By alignment: the first character of base64 that depends on the string alone."""
_URL_SAFE = dict(zip(b"+/", b"-_", strict=True))
_UPPER = dict(zip(b"abcdef", b"ABCDEF", strict=True))
_SHORT_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


@dataclass(frozen=True)
class Strings:
    """Strings of at least one byte each, one after another in one array."""

    content: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, values: pa.LargeBinaryArray) -> Strings:
        """The strings of an array without nulls."""
        _, offsets, content = values.buffers()
        ends = np.frombuffer(offsets, np.int64, len(values) + 1, values.offset * 8)
        data = np.frombuffer(b"" if content is None else content, np.uint8)
        return cls(data[ends[0] : ends[-1]], np.diff(ends))

    @property
    def begins(self) -> np.ndarray:
        """The place of each string in the content."""
        return np.cumsum(self.lengths) - self.lengths

    def with_any(self, bytes_: bytes) -> np.ndarray:
        """The places of the strings that have any of some bytes."""
        is_one = np.zeros(256, np.int64)
        is_one[list(bytes_)] = 1
        return np.flatnonzero(np.add.reduceat(is_one[self.content], self.begins))

    def take(self, chosen: np.ndarray) -> Strings:
        """The strings at some places."""
        return parts_of(self.content, self.begins[chosen], self.lengths[chosen])


def parts_of(content: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> Strings:
    """The strings that begin at some places of a content."""
    return Strings(content[_places(begins, lengths)], lengths)


def _places(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The place of each byte of strings that begin at some places."""
    ends = np.cumsum(lengths)
    return np.repeat(begins - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


Encoded = tuple[Strings, np.ndarray]
"""Strings in a form, and the place of each before; those that look as in an earlier form are left out."""


@dataclass(frozen=True)
class Form:
    """A way to write a string that leaves none of its bytes as they are."""

    name: str
    encode: Callable[[Strings], Encoded]
    """Strings in this form, of which there is at least one."""


def _raw(values: Strings) -> Encoded:
    return values, np.arange(len(values.lengths))


def _base64(values: Strings, *, alignment: int) -> Encoded:
    """The characters of base64 that depend on the string alone, `alignment` bytes after a group of three begins."""
    groups = (values.lengths + alignment + 2) // 3
    begins = np.cumsum(groups) - groups
    padded = np.zeros(int(groups.sum()) * 3, np.uint8)
    padded[_places(begins * 3 + alignment, values.lengths)] = values.content
    encoded = np.frombuffer(base64.b64encode(padded.tobytes()), np.uint8)
    first = _FIRST_WHOLE_CHAR[alignment]
    lengths = (values.lengths + alignment) * 8 // 6 - first
    return parts_of(encoded, begins * 4 + first, lengths), np.arange(len(lengths))


def _base64_url(values: Strings, *, alignment: int) -> Encoded:
    return _changed(_base64(values, alignment=alignment)[0], _URL_SAFE)


def _hex(values: Strings) -> Encoded:
    digits = np.frombuffer(values.content.tobytes().hex().encode(), np.uint8)
    return Strings(digits, values.lengths * 2), np.arange(len(values.lengths))


def _upper_hex(values: Strings) -> Encoded:
    return _changed(_hex(values)[0], _UPPER)


def _changed(values: Strings, changes: Mapping[int, int]) -> Encoded:
    """The strings with some bytes replaced, without those that have none of these."""
    places = values.with_any(bytes(changes))
    table = np.arange(256, dtype=np.uint8)
    table[list(changes)] = list(changes.values())
    chosen = values.take(places)
    return Strings(table[chosen.content], chosen.lengths), places


RAW = Form("raw", _raw)

FORMS = (
    RAW,
    *(Form("base64", partial(_base64, alignment=at)) for at in range(3)),
    *(Form("base64url", partial(_base64_url, alignment=at)) for at in range(3)),
    Form("hex", _hex),
    Form("hex", _upper_hex),
)
"""The forms that are searched as they are.

UTF-16 is not among them: logs, Parquet, JSON, HTML and backups are UTF-8, and neither this engine nor Delta writes
another encoding; it would cost a quarter more patterns.
"""


@dataclass(frozen=True)
class Escapes:
    """A way to write single characters of a string otherwise; undone before a second search of the same bytes."""

    name: str
    mark: bytes
    """The byte that every escape begins with."""
    escape: re.Pattern[bytes]
    undo: Callable[[re.Match[bytes]], bytes]

    def regions(self, content: bytes, reach: int) -> Iterator[tuple[int, int]]:
        """Begin and end of each part of the content that is within `reach` bytes of an escape."""
        begin = end = -1
        for escape in self.escape.finditer(content) if self.mark in content else ():
            if begin >= 0 and escape.start() - reach > end:
                yield begin, end
                begin = -1
            if begin < 0:
                begin = max(escape.start() - reach, 0)
            end = min(escape.end() + reach, len(content))
        if begin >= 0:
            yield begin, end


@dataclass(frozen=True)
class Unescaped:
    """The parts of a content that have escapes, with these undone, one after another."""

    names: tuple[str, ...]
    """The names of the escapes undone, the outermost first."""
    content: bytes
    begins: list[int]
    """The place of each part in `content`, ascending."""
    places: list[int]
    """The place of each part in the original."""

    def place(self, at: int, length: int) -> int | None:
        """The place in the original of the part with `length` bytes at `at`; None: no part has all of them."""
        part = bisect_right(self.begins, at) - 1
        is_across = part + 1 < len(self.begins) and at + length > self.begins[part + 1]
        return None if is_across else self.places[part]


def unescaped(content: bytes, reach: int) -> Iterator[Unescaped]:
    """The content's parts near escapes, for each sequence of escapes to undo."""
    waiting = [Unescaped((), content, [0], [0])]
    while waiting:
        outer = waiting.pop()
        for escapes in ESCAPES if len(outer.names) < MAX_DEPTH else ():
            inner = _undone(outer, escapes, reach)
            if inner.content:
                yield inner
                waiting.append(inner)


def _undone(outer: Unescaped, escapes: Escapes, reach: int) -> Unescaped:
    parts: list[bytes] = []
    begins, places = [], []
    length = 0
    for begin, end in escapes.regions(outer.content, reach):
        parts.append(escapes.escape.sub(escapes.undo, outer.content[begin:end]))
        begins.append(length)
        places.append(outer.place(begin, 0) or 0 if outer.names else begin)
        length += len(parts[-1])
    return Unescaped((*outer.names, escapes.name), b"".join(parts), begins, places)


def _from_json(escape: re.Match[bytes]) -> bytes:
    written = escape[0]
    if written[1:2] != b"u":
        return _SHORT_ESCAPES.get(written[1:], written[1:])
    units = bytes.fromhex(written.replace(b"\\u", b"").decode())
    return units.decode("utf-16-be", "surrogatepass").encode(errors="surrogatepass")


def _from_html(escape: re.Match[bytes]) -> bytes:
    return html.unescape(escape[0].decode()).encode()


_JSON = rb"\\(?:u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4})*|[\"\\/bfnrt])"
ESCAPES = (
    Escapes("json", b"\\", re.compile(_JSON), _from_json),
    Escapes(
        "percent", b"%", re.compile(rb"%[0-9A-Fa-f]{2}"), lambda escape: unquote_to_bytes(escape[0])
    ),
    Escapes("html", b"&", re.compile(rb"&(?:#x27|#39|#34|quot|amp|lt|gt);"), _from_html),
)
"""The escapes of JSON, of URLs and paths of partitions, and of HTML reports, in any mixture that a writer chose."""
