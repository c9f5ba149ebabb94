"""Ways to write a string, and files to hide bytes in: those of this engine, of Delta, and of archives."""

from __future__ import annotations

import base64
import bz2
import gzip
import html
import io
import json
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from retention.formats.s2.stream import write_frames


def _base64(text: str, alignment: int, encode: Callable[[bytes], bytes]) -> bytes:
    return encode(b"xyz"[:alignment] + text.encode() + b"after")


def _json(text: str, **options: Any) -> bytes:
    return json.dumps({"subject": text}, **options).encode()


WRITTEN: Mapping[str, Callable[[str], bytes]] = {
    "raw": str.encode,
    "json": _json,
    "json-utf8": partial(_json, ensure_ascii=False),
    "json-slash": lambda text: _json(text).replace(b"/", b"\\/"),
    "json-every-character": lambda text: re.sub(
        rb"(..)",
        lambda unit: b"\\u" + unit[1].hex().upper().encode(),
        text.encode("utf-16-be"),
        flags=re.S,
    ),
    "json-in-json": lambda text: json.dumps({"stats": _json(text).decode()}).encode(),
    "percent": lambda text: quote(text, safe="").encode(),
    "percent-path": lambda text: quote(text).encode(),
    "percent-twice": lambda text: quote(quote(text, safe="")).encode(),
    "percent-lower": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()).encode(),
    "html": lambda text: html.escape(text).encode(),
    **{f"base64-{at}": partial(_base64, alignment=at, encode=base64.b64encode) for at in range(3)},
    **{
        f"base64url-{at}": partial(_base64, alignment=at, encode=base64.urlsafe_b64encode)
        for at in range(3)
    },
    "base64-in-json": lambda text: (
        base64.b64encode(text.encode()).replace(b"/", b"\\/").replace(b"+", b"\\u002b")
    ),
    "hex": lambda text: text.encode().hex().encode(),
    "hex-upper": lambda text: text.encode().hex().upper().encode(),
    "truncated": lambda text: text[:32].encode(),
}
"""The ways to write a string."""


def _parquet(content: bytes, **options: Any) -> bytes:
    """Bytes as one value of three."""
    column = pa.array([b"before", content, b"before and after"], pa.binary())
    return parquet_of(column, **options)


def parquet_of(column: pa.Array, **options: Any) -> bytes:
    """A Parquet file of one column; statistics would have the value in clear."""
    sink = io.BytesIO()
    table = pa.table({"number": range(len(column)), "value": column})
    pq.write_table(table, sink, **{"write_statistics": False, **options})
    return sink.getvalue()


def _orphan(content: bytes) -> bytes:
    """A dictionary with an entry that no row has."""
    values = pa.array([b"first", content], pa.binary())
    return parquet_of(pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), values))


def _delta_encoded(content: bytes) -> bytes:
    """A value of which the page has only the end, as the one before it has the same beginning."""
    column = pa.array([content[: len(content) // 2] + b"other", content], pa.binary())
    return parquet_of(column, use_dictionary=False, column_encoding={"value": "DELTA_BYTE_ARRAY"})


def _split_streams(content: bytes) -> bytes:
    column = pa.array([content, bytes(len(content))], pa.binary(len(content)))
    encoding = {"value": "BYTE_STREAM_SPLIT"}
    return parquet_of(column, use_dictionary=False, column_encoding=encoding)


def _nested_column(content: bytes) -> bytes:
    rows = [[{"key": "header", "value": content}], []]
    type_ = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    return parquet_of(pa.array(rows, type_), compression="zstd")


def _parquet_metadata(content: bytes) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({"request": content}), sink)
    return sink.getvalue()


def _arrow(content: bytes, compression: str | None, make: Any, *, is_dictionary: bool) -> bytes:
    column = pa.array([b"before", content], pa.binary())
    table = pa.table({"value": column.dictionary_encode() if is_dictionary else column})
    sink = io.BytesIO()
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
        out.write_table(table)
    return sink.getvalue()


def _zipped(content: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first.txt", b"nothing here")
        archive.writestr("inner/second", content)
    return sink.getvalue()


def _tarred(content: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        member = tarfile.TarInfo("inner/member")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def _framed(content: bytes) -> bytes:
    sink = io.BytesIO()
    write_frames(sink, [content])
    return sink.getvalue()


def _packed(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        out.write(content)
    return sink.getvalue().to_pybytes()


CONTAINERS: Mapping[str, Callable[[bytes], bytes]] = {
    "plain": lambda content: b"before" + content + b"after",
    **{
        f"parquet-{codec}": partial(_parquet, compression=codec)
        for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
    },
    "parquet-plain": partial(_parquet, use_dictionary=False, compression="zstd"),
    "parquet-v2": partial(_parquet, data_page_version="2.0", use_dictionary=False),
    "parquet-orphan": _orphan,
    "parquet-delta": _delta_encoded,
    "parquet-split": _split_streams,
    "parquet-nested": _nested_column,
    "parquet-metadata": _parquet_metadata,
    "parquet-indexed": partial(_parquet, write_page_index=True, write_statistics=True),
    **{
        f"arrow-{compression}-{name}-{'dictionary' if is_dictionary else 'values'}": partial(
            _arrow, compression=compression, make=make, is_dictionary=is_dictionary
        )
        for compression in (None, "zstd", "lz4")
        for name, make in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream))
        for is_dictionary in (False, True)
    },
    "parquet-and-hash": lambda content: _parquet(content, compression="lz4") + b"0123456789abcdef",
    "arrow-and-hash": lambda content: (
        _arrow(content, "lz4", pa.ipc.new_file, is_dictionary=False) + b"0123456789abcdef"
    ),
    "gzip": gzip.compress,
    "gzip-twice-appended": lambda content: gzip.compress(b"first") + gzip.compress(content),
    "zstd": partial(_packed, codec="zstd"),
    "lz4": partial(_packed, codec="lz4"),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "s2": _framed,
    "zip": _zipped,
    "tar": _tarred,
    "tar-gz": lambda content: gzip.compress(_tarred(content)),
    "tar-of-gz": lambda content: _tarred(gzip.compress(content)),
    "zip-of-parquet": lambda content: _zipped(_parquet(content, compression="zstd")),
    "gzip-of-arrow": lambda content: gzip.compress(
        _arrow(content, "zstd", pa.ipc.new_stream, is_dictionary=False)
    ),
}
"""The files in which bytes may lie."""
