"""A stranger's search of everything below a directory for strings: plain Python and pyarrow, nothing of this engine.

    python strangers_search.py DIRECTORY STRING…

It judges erasures, so it shares no code with them: it undoes every encoding by trial, and looks with `in`.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import html
import io
import lzma
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.parquet as pq

BASE64_RUN = re.compile(rb"[A-Za-z0-9+/_-]{14,}")
HEX_RUN = re.compile(rb"[0-9A-Fa-f]{24,}")
PAIR = re.compile(rb"\\u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})")
ESCAPED = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}


def hiding_places(directory: str, strings: list[bytes]) -> list[tuple[str, str]]:
    """Path and way of reading of every place that has one of the strings."""
    places = []
    for path in every_file(directory):
        for way, content in readings(path, directory):
            if any(string in content for string in strings):
                places.append((os.path.relpath(path, directory), way))
    return places


def every_file(directory: str) -> Iterator[str]:
    """Every file below a directory, by its path; links are followed as they are met."""
    for parent, _, names in os.walk(directory, followlinks=True):
        yield from (os.path.join(parent, name) for name in names)  # noqa: PTH118


def readings(path: str, directory: str) -> Iterator[tuple[str, bytes]]:
    """Everything that can be read out of a file and of its name."""
    yield from undone("name", os.fsencode(os.path.relpath(path, directory)))
    with open(path, "rb") as file:  # noqa: PTH123
        content = file.read()
    for way, part in opened("file", content, 3):
        yield from undone(way, part)


def opened(way: str, content: bytes, levels: int) -> Iterator[tuple[str, bytes]]:
    """The content, and what is inside if it is a container of any kind."""
    yield way, content
    if not levels:
        return
    for name, unpack in UNPACK.items():
        for part in as_far_as_possible(unpack(content)):
            yield from opened(f"{way}/{name}", part, levels - 1)


def as_far_as_possible(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The parts before the first error; most contents are not what is tried."""
    with suppress(Exception):
        yield from parts


def undone(way: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """The content with its escapes undone up to three times, and the runs of base64 and hex in each of these."""
    for times in range(4):
        yield f"{way}, unescaped {times} times", content
        yield f"{way}, base64", b"\0".join(from_base64(content))
        yield f"{way}, hex", b"\0".join(from_hex(content))
        before, content = content, unescape(content)
        if before == content:
            return


def unescape(content: bytes) -> bytes:
    plain = ESCAPED.sub(from_backslash, PAIR.sub(from_pair, content))
    plain = re.sub(rb"&[#a-z0-9]+;", lambda found: html.unescape(found[0].decode()).encode(), plain)
    return unquote_to_bytes(plain)


def from_pair(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex((found[1] + found[2]).decode()).decode("utf-16-be").encode()


def from_backslash(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return chr(int(found[1], 16)).encode("utf-8", "surrogatepass")
    return LETTERS.get(found[2], found[2])


def from_base64(content: bytes) -> Iterator[bytes]:
    for run in BASE64_RUN.findall(content):
        text = run.replace(b"-", b"+").replace(b"_", b"/")
        for start in range(4):
            part = text[start:]
            usable = part[: len(part) - (len(part) % 4 == 1)]
            yield base64.b64decode(usable + b"=" * (-len(usable) % 4))


def from_hex(content: bytes) -> Iterator[bytes]:
    for run in HEX_RUN.findall(content):
        for start in range(2):
            part = run[start:]
            yield binascii.unhexlify(part[: len(part) // 2 * 2])


def of_arrow(column: Any) -> Iterator[bytes]:
    """Every value of a column as bytes, between zeros."""
    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            yield from of_arrow(chunk)
        return
    if pa.types.is_dictionary(column.type):
        yield from of_arrow(column.dictionary)
        return
    flat: list[bytes] = []
    collect(column.to_pylist(), flat)
    yield b"\0".join(flat)


def collect(value: object, into: list[bytes]) -> None:
    if isinstance(value, bytes):
        into.append(value)
    elif isinstance(value, dict):
        for item in value.items():
            collect(item, into)
    elif isinstance(value, list | tuple):
        for part in value:
            collect(part, into)
    elif value is not None:
        into.append(str(value).encode("utf-8", "surrogatepass"))


def up_to(content: bytes, mark: bytes) -> bytes:
    """The content without what follows the last mark, such as a checksum."""
    return content[: content.rindex(mark) + len(mark)]


def of_parquet(content: bytes) -> Iterator[bytes]:
    content = up_to(content, b"PAR1")
    source = pa.BufferReader(content)
    file = pq.ParquetFile(source)
    names = [
        file.schema.column(at).path for at in range(len(file.schema))
        if file.schema.column(at).physical_type == "BYTE_ARRAY"
    ]  # fmt: skip
    yield repr(file.metadata.to_dict()).encode()
    collected: list[bytes] = []
    collect(file.metadata.metadata or {}, collected)
    yield b"\0".join(collected)
    for column in file.read().columns:
        yield from of_arrow(column)
    dictionaries = pq.ParquetFile(pa.BufferReader(content), read_dictionary=names)
    for column in dictionaries.read(columns=names).columns:
        yield from of_arrow(column)


def of_ipc(content: bytes) -> Iterator[bytes]:
    for column in pa.ipc.open_stream(content).read_all().columns:
        yield from of_arrow(column)


def of_ipc_file(content: bytes) -> Iterator[bytes]:
    for column in pa.ipc.open_file(up_to(content, b"ARROW1")).read_all().columns:
        yield from of_arrow(column)


def of_zip(content: bytes) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            yield archive.read(name)


def of_tar(content: bytes) -> Iterator[bytes]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None:
                yield file.read()


def by(decode: Callable[[bytes], bytes]) -> Callable[[bytes], Iterator[bytes]]:
    def decoded(content: bytes) -> Iterator[bytes]:
        yield decode(content)

    return decoded


def of_codec(codec: str, magic: bytes) -> Callable[[bytes], Iterator[bytes]]:
    """Reading of frames of a codec; anything else is not tried, because each failure leaks a quarter of a MiB."""

    def decoded(content: bytes) -> Iterator[bytes]:
        if content.startswith(magic):
            yield pa.CompressedInputStream(pa.BufferReader(content), codec).read()

    return decoded


UNPACK: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "parquet": of_parquet,
    "arrow-file": of_ipc_file,
    "arrow-stream": of_ipc,
    "zip": of_zip,
    "tar": of_tar,
    "gzip": by(gzip.decompress),
    "bz2": by(bz2.decompress),
    "xz": by(lzma.decompress),
    "zstd": of_codec("zstd", b"\x28\xb5\x2f\xfd"),
    "lz4": of_codec("lz4", b"\x04\x22\x4d\x18"),
}


def main() -> int:
    """Print every hiding place; exit with 1 if there is any."""
    places = hiding_places(sys.argv[1], [string.encode() for string in sys.argv[2:]])
    for path, way in places:
        print(f"{path}: {way}")
    return 1 if places else 0


if __name__ == "__main__":
    raise SystemExit(main())
