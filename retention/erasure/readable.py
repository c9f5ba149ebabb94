"""The views of a file: its bytes as stored, and everything that they contain once decompressed and decoded."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from retention.erasure import parquet_pages
from retention.errors import RetentionError
from retention.formats.s2.stream import read_frames
from retention.storage.errors import is_of_storage

PIECE_BYTES = 1 << 20
MAX_NESTED_BYTES = 256 << 20
"""The longest content of a container that is decoded again: it has to be in memory."""
_HEAD_BYTES = 512
_DEPTH = 2
"""The depth to which containers are opened: a file within an archive, and nothing within that."""
_UNDECODABLE = (
    ValueError,
    KeyError,
    IndexError,
    EOFError,
    OSError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    lzma.LZMAError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    RetentionError,
    pa.ArrowException,
)


@dataclass(frozen=True)
class View:
    """The bytes of a file in one reading."""

    name: str
    """The path of decoding, such as `gzip`, or `zip:a.parquet > parquet pages`; `bytes` for the file as stored."""
    pieces: Iterator[bytes]
    """Consecutive pieces; reading one may raise `UndecodableError`."""


Opened: TypeAlias = Iterator[tuple[View, bool]]
"""The views of a container, each with whether it is a file that may be a container again."""


class UndecodableError(Exception):
    """A container cannot be decoded, wholly or from here on; its bytes as stored are a view of their own."""


def views(source: pa.NativeFile) -> Iterator[View]:
    """The views of an open file; each must be read before the next is requested."""
    source.seek(0)
    yield View("bytes", _read(source))
    yield from _decoded(source, "", _DEPTH)


def _decoded(source: pa.NativeFile, prefix: str, depth: int) -> Iterator[View]:
    """The views of a container, if the source is one."""
    source.seek(0)
    container = _container(source.read(_HEAD_BYTES))
    if container is None or not depth:
        return
    name, open_views = container
    source.seek(0)
    try:
        with _as_undecodable(f"{prefix}{name}"):
            yield from _opened(open_views(source), prefix, depth)
    except UndecodableError as error:
        yield View(f"{prefix}{name}", _failing(error))


def _opened(opened: Opened, prefix: str, depth: int) -> Iterator[View]:
    for view, is_file in opened:
        full = f"{prefix}{view.name}"
        pieces = _guarded(full, view.pieces)
        if not is_file:
            yield View(full, pieces)
            continue
        kept = _Kept(pieces)
        yield View(full, iter(kept))
        if kept.content is not None:
            yield from _decoded(pa.BufferReader(kept.content), f"{full} > ", depth - 1)


def _failing(error: UndecodableError) -> Iterator[bytes]:
    """No piece, only the error."""
    yield from ()
    raise error


class _as_undecodable:  # noqa: N801  (a context manager, used like a function)
    """Errors of decoders within the block as `UndecodableError`; errors of the storage pass."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Begin to decode."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Translate an error of a decoder."""
        if isinstance(error, _UNDECODABLE) and not (
            isinstance(error, OSError) and is_of_storage(error)
        ):
            raise UndecodableError(self._name) from error


def _guarded(name: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, joined or cut to a size that is worth a search each."""
    with _as_undecodable(name):
        pending: list[bytes] = []
        size = 0
        for piece in pieces:
            pending.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                yield b"".join(pending)
                pending, size = [], 0
        if pending:
            yield b"".join(pending)


class _Kept:
    """Pieces that pass through, and are kept to be decoded again if they are a container."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.content: bytes | None = None

    def __iter__(self) -> Iterator[bytes]:
        first = next(self._pieces, b"")
        is_container = _container(first[:_HEAD_BYTES]) is not None
        kept = bytearray()
        for piece in chain([first] if first else [], self._pieces):
            if is_container and len(kept) <= MAX_NESTED_BYTES:
                kept += piece
            yield piece
        if len(kept) > MAX_NESTED_BYTES:
            raise UndecodableError("a container within a container, too long to be decoded")
        self.content = bytes(kept) if is_container else None


def _parquet(source: pa.NativeFile) -> Opened:
    """The decompressed pages, the values that pages do not contain in one piece, and the metadata."""
    source = _without_trailer(source, b"PAR1")
    with pq.ParquetFile(source) as file:
        metadata = file.metadata.metadata or {}
        yield (
            View("parquet metadata", iter([b"\n".join(chain) for chain in metadata.items()])),
            False,
        )
        yield View("parquet pages", parquet_pages.pages(file, source)), False
        arrays = parquet_pages.values(file)
        yield (
            View("parquet values", (piece for array in arrays for piece in _buffers(array))),
            False,
        )


def _without_trailer(source: pa.NativeFile, mark: bytes) -> pa.NativeFile:
    """The source up to the mark that ends its format: this engine's records have a hash after it."""
    size = source.size()
    last = source.read_at(_HEAD_BYTES, max(size - _HEAD_BYTES, 0))
    extra = len(last) - last.rfind(mark) - len(mark) if mark in last else 0
    return pa.BufferReader(source.read_at(size - extra, 0)) if extra else source


def _arrow_file(source: pa.NativeFile) -> Opened:
    with pa.ipc.open_file(_without_trailer(source, b"ARROW1")) as reader:
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        yield View("arrow", _columns(batches)), False


def _arrow_stream(source: pa.NativeFile) -> Opened:
    with pa.ipc.open_stream(source) as reader:
        yield View("arrow", _columns(reader)), False


def _columns(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        for column in batch.columns:
            yield from _buffers(column)


def _buffers(array: pa.Array) -> Iterator[bytes]:
    """Every buffer of an array, of its children and of its dictionary, whether or not a row refers to it."""
    if pa.types.is_dictionary(array.type):
        yield from _buffers(array.dictionary)
        return
    if isinstance(array, pa.ExtensionArray):
        yield from _buffers(array.storage)
        return
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _buffers(child)
        return
    if (
        pa.types.is_list(array.type)
        or pa.types.is_large_list(array.type)
        or pa.types.is_map(array.type)
    ):
        yield from _buffers(array.values if not pa.types.is_map(array.type) else array.keys)
        if pa.types.is_map(array.type):
            yield from _buffers(array.items)
        return
    yield from (buffer.to_pybytes() for buffer in array.buffers() if buffer is not None)


def _compressed(codec: str) -> Callable[[pa.NativeFile], Opened]:
    def open_views(source: pa.NativeFile) -> Opened:
        yield View(codec, _read(pa.CompressedInputStream(source, codec))), True

    return open_views


def _xz(source: pa.NativeFile) -> Opened:
    with lzma.open(source) as content:
        yield View("xz", _read(content)), True


def _s2(source: pa.NativeFile) -> Opened:
    yield View("s2", read_frames(source)), True


def _tar(source: pa.NativeFile) -> Opened:
    with tarfile.open(fileobj=source, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                yield View(f"tar:{member.name}", _read(content)), True


def _zip(source: pa.NativeFile) -> Opened:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as content:
                    yield View(f"zip:{member.filename}", _read(content)), True


_CONTAINERS: tuple[tuple[int, bytes, str, Callable[[pa.NativeFile], Opened]], ...] = (
    (0, b"PAR1", "parquet", _parquet),
    (0, b"ARROW1\0\0", "arrow", _arrow_file),
    (0, b"\xff\xff\xff\xff", "arrow", _arrow_stream),
    (0, b"\x1f\x8b", "gzip", _compressed("gzip")),
    (0, b"\x28\xb5\x2f\xfd", "zstd", _compressed("zstd")),
    (0, b"\x04\x22\x4d\x18", "lz4", _compressed("lz4")),
    (0, b"BZh", "bz2", _compressed("bz2")),
    (0, b"\xfd7zXZ\0", "xz", _xz),
    (0, b"\xff\x06\x00\x00sNaPpY", "s2", _s2),
    (0, b"\xff\x06\x00\x00S2sTwO", "s2", _s2),
    (0, b"PK\x03\x04", "zip", _zip),
    (257, b"ustar", "tar", _tar),
)
"""Place and bytes of the mark of each container, its name, and its views."""


def _container(head: bytes) -> tuple[str, Callable[[pa.NativeFile], Opened]] | None:
    for at, mark, name, open_views in _CONTAINERS:
        if head[at : at + len(mark)] == mark:
            return name, open_views
    return None


def _read(source: Any) -> Iterator[bytes]:
    while piece := source.read(PIECE_BYTES):
        yield bytes(piece)
