"""The entries of a NATS archive (`NATSARC1`), read from and written to a framed file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.errors import DamagedError
from retention.formats.nats import varint as varints
from retention.formats.s2 import stream as s2
from retention.storage.errors import as_storage_errors

ENTRIES = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("name", pa.binary(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("headers", pa.binary(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""One row per entry: a message with its subject as `name`, or a document with its name and sequence 0."""

_MAGIC = b"NATSARC1"
_END = bytes(5)
_TAR_MAGIC = slice(257, 262)
_PARSED_BYTES = 4 << 20
_MAX_ENTRY_BYTES = 256 << 20
_VARINT = r"[\x80-\xff]{0,9}[\x00-\x7f]"
_FIELDS = re.compile(f"({_VARINT}){_VARINT}{_VARINT}({_VARINT})({_VARINT})".encode("latin-1"))
_FIELDS_MAX_BYTES = 50


def read(path: Path) -> Iterator[pa.Table]:
    """Read the entries in order, without the empty end entry; yields tables of shape `ENTRIES`.

    Raises:
        DamagedError: the file is not such an archive, is truncated, or has a malformed entry.
    """
    with as_storage_errors(str(path)), path.open("rb") as file:
        pieces = _joined(s2.read_frames(file))
        rest = _without_magic(path, next(pieces, b""))
        at = len(_MAGIC)
        while True:
            starts, cuts = _scan(path, at, rest)
            if starts:
                yield _table(rest, starts, cuts)
                at, rest = at + cuts[-1], rest[cuts[-1] :]
            if rest.startswith(_END):
                break
            piece = next(pieces, b"")
            if not piece:
                raise damaged(path, at, "the archive ends without its end entry")
            rest += piece
        if len(rest) > len(_END) or next(pieces, b""):
            raise damaged(path, at, "the archive continues after its end entry")


def encode(documents: Mapping[str, object], messages: Iterable[pa.Table]) -> Iterator[bytes]:
    """Encode an archive: the documents as JSON, then the messages.

    Args:
        documents: name → content, in the order that a server expects.
        messages: tables with `seq`, `subject`, `ts_ns`, `headers` and `payload`.
    """
    yield _MAGIC
    for name, content in documents.items():
        body = json.dumps(content, separators=(",", ":")).encode()
        yield _encoded(pa.table([[0], [name.encode()], [0], [b""], [body]], schema=ENTRIES))
    for table in messages:
        columns = [table[name] for name in ("seq", "subject", "ts_ns", "headers", "payload")]
        for piece in _pieces(pa.table(columns, names=ENTRIES.names)):
            yield _encoded(piece)
    yield _END


def damaged(path: Path, at: int, problem: str) -> DamagedError:
    """The error for an archive that is invalid at byte `at` of its decoded content."""
    return DamagedError(
        f"{path}: byte {at} of the archive: {problem}; nothing was imported; "
        "make or copy the backup again"
    )


def _joined(frames: Iterable[bytes]) -> Iterator[bytes]:
    buffered: list[bytes] = []
    size = 0
    for frame in frames:
        buffered.append(frame)
        size += len(frame)
        if size >= _PARSED_BYTES:
            yield b"".join(buffered)
            buffered, size = [], 0
    yield b"".join(buffered)


def _without_magic(path: Path, piece: bytes) -> bytes:
    if piece.startswith(_MAGIC):
        return piece[len(_MAGIC) :]
    if piece[_TAR_MAGIC] == b"ustar":
        raise DamagedError(
            f"{path}: this is a v1 backup (a tar file) of a server before 2.15, which cannot be read; "
            "nothing was imported; restore it into nats-server 2.15 or later and back it up there"
        )
    raise damaged(path, 0, "this is not a NATS stream backup")


def _scan(path: Path, at: int, data: bytes) -> tuple[list[int], list[int]]:
    """The start of each complete entry, and four positions in it: three starts and the end.

    ::

    | numbers | name | headers | payload |
    start     0      1         2         3
    """
    starts: list[int] = []
    cuts: list[int] = []
    place, size = 0, len(data)
    while not data.startswith(_END, place):
        fields = _FIELDS.match(data, place)
        if fields is None:
            if size - place >= _FIELDS_MAX_BYTES:
                raise damaged(path, at + place, "an entry begins with malformed numbers")
            break
        name, headers, payload = fields.groups()
        begin = fields.end()
        head = begin + (name[0] if len(name) == 1 else _number(name))
        body = head + (headers[0] if len(headers) == 1 else _number(headers))
        end = body + (payload[0] if len(payload) == 1 else _number(payload))
        if end > size:
            if end - place > _MAX_ENTRY_BYTES:
                raise damaged(path, at + place, f"an entry claims to be {end - place} bytes long")
            break
        starts.append(place)
        cuts += (begin, head, body, end)
        place = end
    return starts, cuts


def _number(varint: bytes) -> int:
    return sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(varint))


def _table(data: bytes, starts: list[int], cuts: list[int]) -> pa.Table:
    octets = np.frombuffer(data, dtype=np.uint8)
    _, places = varints.decode(octets, np.array(starts))
    times, places = varints.decode(octets, places)
    seqs, _ = varints.decode(octets, places)
    # As offsets of one binary column, the positions split the data without a copy: name, headers,
    # payload, and the numbers of the next entry.
    buffers = [None, pa.py_buffer(np.array(cuts, dtype=np.int32)), pa.py_buffer(data)]
    parts = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, buffers)
    names, headers, payloads = (parts.take(np.arange(at, len(cuts) - 1, 4)) for at in range(3))
    columns = [seqs.view(np.int64), names, varints.unzigzag(times), headers, payloads]
    return pa.table(columns, schema=ENTRIES)


def _pieces(entries: pa.Table) -> Iterator[pa.Table]:
    """Yield slices of about `_PARSED_BYTES`, so that copies are small even for large tables."""
    lengths = sum(
        pc.fill_null(pc.binary_length(entries[name]), 0).to_numpy().astype(np.int64)
        for name in ("name", "headers", "payload")
    )
    piece = np.cumsum(lengths) // _PARSED_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), entries.num_rows]
    for start, end in pairwise(cuts):
        yield entries.slice(start, end - start)


def _encoded(entries: pa.Table) -> bytes:
    texts = [
        pc.fill_null(entries[name].combine_chunks().cast(pa.binary()), b"")
        for name in ("name", "headers", "payload")
    ]
    name, headers, payload = (pc.binary_length(text).to_numpy().astype(np.uint64) for text in texts)
    times = varints.zigzag(entries["ts_ns"].to_numpy())
    numbers = [name, times, entries["seq"].to_numpy().astype(np.uint64), headers, payload]
    joined = pc.binary_join_element_wise(varints.encode(numbers), *texts, b"")
    whole: bytes = pc.binary_join(pa.ListArray.from_arrays([0, len(joined)], joined), b"")[
        0
    ].as_py()
    return whole
