"""Deletion vectors of data files: their dead rows, read from the log or a `.bin` file, united, and written."""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
from pyroaring import BitMap, BitMap64

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import first_line

INLINE_BYTES = 2240
"""The longest vector to put into the log: 2,800 characters. deltalake's full vacuum deletes `.bin` files in use."""
VECTORS_ENABLED = "delta.enableDeletionVectors"
"""The property of tables in which removals may be vectors."""
DEAD_SHARE = 0.5
"""The share of dead rows from which a copy costs readers less than a vector."""
FILE_BYTES = 1 << 30
"""The length at which a `.bin` file gets no more vectors; their offsets have 31 bits."""
_MAGIC = struct.pack("<I", 1681511377)
"""The first bytes of a vector in the portable format."""
_FORMAT = b"\x01"
"""The first byte of a `.bin` file."""
_CHARACTERS = np.frombuffer(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    np.uint8,
)
_DIGITS = np.full(256, -1, np.int64)
_DIGITS[_CHARACTERS] = np.arange(85)
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.int64)
_UUID_CHARACTERS = 20
_LOCAL_URI = re.compile(r"file:(//)?(?=/)")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=-]+")


def bitmap_of(positions: np.ndarray) -> BitMap64:
    """The set of positions, as BitMap64 makes it of numbers one by one; shape (n,), ascending.

    >>> bitmap_of(np.array([1, 7]))
    BitMap64([1, 7])
    """
    if not len(positions) or int(positions[-1]) >> 32:
        return BitMap64(array("Q", positions.astype(np.uint64).tobytes()))
    low = BitMap(array("I", positions.astype(np.uint32).tobytes()))
    # One bitmap of 32 bits, whose numbers all begin with 32 bits of 0.
    return BitMap64.deserialize(struct.pack("<QI", 1, 0) + low.serialize())


def positions_of(bitmap: BitMap64) -> np.ndarray:
    """The positions of a set, ascending; shape (n,), int64."""
    return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)


def encode_z85(content: bytes) -> str:
    r"""Encode bytes as Z85, padded with zeros to a multiple of four.

    >>> encode_z85(b"\x86\x4f\xd2\x6f\xb5\x59\xf7\x5b")
    'HelloWorld'
    """
    words = np.frombuffer(content + bytes(-len(content) % 4), ">u4").astype(np.int64)
    return _CHARACTERS[words[:, None] // _POWERS % 85].tobytes().decode("ascii")


def decode_z85(text: str) -> bytes:
    r"""Decode Z85.

    >>> decode_z85("HelloWorld").hex()
    '864fd26fb559f75b'

    Raises:
        ValueError: a character is none of Z85, or the text ends inside a group of five.
    """
    digits = _DIGITS[np.frombuffer(text.encode("ascii"), np.uint8)]
    if len(digits) % 5 or (digits < 0).any():
        raise ValueError("it is not Z85")
    words = digits.reshape(-1, 5) @ _POWERS
    if (words >> 32).any():
        raise ValueError("it is not Z85")
    return words.astype(">u4").tobytes()


def vector_location(root: str, vector: Mapping[str, Any]) -> str | None:
    """The location of the file with a vector; None for a vector in the log itself.

    Raises:
        DamagedError: the log names no such file.
    """
    kind, name = vector["storageType"], vector["pathOrInlineDv"]
    if kind == "i":
        return None
    if kind == "p":
        return _LOCAL_URI.sub("", unquote(name))
    try:
        number = _file_number(kind, name[-_UUID_CHARACTERS:])
    except ValueError as error:
        raise _damaged(root, error) from error
    prefix = [part for part in (name[:-_UUID_CHARACTERS],) if part]
    return files.join(root, *prefix, f"deletion_vector_{number}.bin")


def _file_number(kind: str, text: str) -> uuid.UUID:
    if kind != "u":
        raise ValueError(f"its storage type is {kind!r}")
    return uuid.UUID(bytes=decode_z85(text))


def read_vector(root: str, vector: Mapping[str, Any] | None) -> BitMap64:
    """Read the positions of a file's dead rows, counted from 0; none without a vector.

    Raises:
        DamagedError: the vector is missing, or contradicts its checksum, its size or its count.
    """
    if vector is None:
        return BitMap64()
    location = vector_location(root, vector)
    try:
        content = _inline(vector) if location is None else _stored(location, vector)
        return _positions(content, vector["cardinality"])
    except (ValueError, IndexError, FileNotFoundError) as error:
        raise _damaged(location or root, error) from error


def unite(root: str, add: Mapping[str, Any], dead: BitMap64) -> BitMap64:
    """The rows of a file that are dead already, by its vector, or at the positions `dead`.

    Raises:
        DamagedError: as `read_vector`.
    """
    return read_vector(root, add.get("deletionVector")) | dead


def needs_rewrite(path: str) -> bool:
    """Whether a file must be rewritten, because some readers would overlook a vector of it.

    Polars ignores the vector if the path in the log, `path`, is written differently on disk.
    """
    return _PLAIN_PATH.fullmatch(path) is None


def choose(root: str, bitmaps: Sequence[BitMap64]) -> list[dict[str, Any]]:
    """Write vectors: short ones into their descriptors, all others into one `.bin` file; durable on return.

    Returns:
        The descriptors for the log, in order.
    """
    contents = [_content(bitmap) for bitmap in bitmaps]
    large = [
        bitmap for bitmap, content in zip(bitmaps, contents, strict=True) if _is_large(content)
    ]
    stored = iter(write_vectors(root, large))
    return [
        next(stored) if _is_large(content) else inline(bitmap)
        for bitmap, content in zip(bitmaps, contents, strict=True)
    ]


def inline(bitmap: BitMap64) -> dict[str, Any]:
    """The descriptor that contains the vector itself."""
    content = _content(bitmap)
    return {
        "storageType": "i",
        "pathOrInlineDv": encode_z85(content),
        "sizeInBytes": len(content),
        "cardinality": len(bitmap),
    }


def write_vectors(root: str, bitmaps: Sequence[BitMap64]) -> list[dict[str, Any]]:
    """Write vectors to a new `.bin` file below `root`, a further one each `FILE_BYTES`; durable on return.

    Returns:
        The descriptors for the log, in order.
    """
    written: list[dict[str, Any]] = []
    while len(written) < len(bitmaps):
        written += _write_file(root, bitmaps[len(written) :])
        reached(Step.VECTORS_WRITTEN)
    return written


def _write_file(root: str, bitmaps: Iterable[BitMap64]) -> list[dict[str, Any]]:
    """Write the first vectors, up to `FILE_BYTES`, to a new file."""
    number = uuid.uuid4()
    written, offset = [], len(_FORMAT)
    with files.create_unshared(files.join(root, f"deletion_vector_{number}.bin")) as sink:
        sink.write(_FORMAT)
        for bitmap in bitmaps:
            content = _content(bitmap)
            sink.write(_framed(content))
            written.append(
                {
                    "storageType": "u",
                    "pathOrInlineDv": encode_z85(number.bytes),
                    "offset": offset,
                    "sizeInBytes": len(content),
                    "cardinality": len(bitmap),
                }
            )
            offset += len(content) + 8
            if offset >= FILE_BYTES:
                break
    return written


def write_stored(location: str, bitmap: BitMap64) -> None:
    """Write one vector to a new `.bin` file, at offset 1; durable on return."""
    with files.create_unshared(location) as sink:
        sink.write(_FORMAT + _framed(_content(bitmap)))
    reached(Step.VECTORS_WRITTEN)


def read_stored(location: str, offset: int) -> BitMap64:
    """Read the positions of dead rows from a vector in a `.bin` file.

    Raises:
        DamagedError: the vector is missing, or contradicts its checksum.
    """
    return _read_stored(location, offset)[0]


def describe_stored(location: str, number: str, offset: int) -> dict[str, Any]:
    """The descriptor of a vector in a `.bin` file of the table's directory.

    Args:
        location: the file's location.
        number: the UUID in its name.
        offset: the vector's offset in it.

    Raises:
        DamagedError: as `read_stored`.
    """
    dead, size = _read_stored(location, offset)
    return {
        "storageType": "u",
        "pathOrInlineDv": encode_z85(uuid.UUID(number).bytes),
        "offset": offset,
        "sizeInBytes": size,
        "cardinality": len(dead),
    }


def stored_place(vector: Mapping[str, Any]) -> tuple[str, int] | None:
    """The UUID of the `.bin` file in the table's directory with a vector, and its offset; None if it lies elsewhere."""
    if vector["storageType"] != "u" or len(vector["pathOrInlineDv"]) != _UUID_CHARACTERS:
        return None
    try:
        number = _file_number("u", vector["pathOrInlineDv"])
    except ValueError:
        return None
    offset = vector.get("offset")
    return number.hex, len(_FORMAT) if offset is None else offset


def is_worth(rows: int, dead: int) -> bool:
    """Whether a file of `rows` rows is better read under a vector of `dead` of them than copied without them."""
    return dead < rows * DEAD_SHARE


def _read_stored(location: str, offset: int) -> tuple[BitMap64, int]:
    """A vector in a file, and its size in bytes."""
    try:
        with files.reading(location) as source:
            framed = bytes(source.read_at(4, offset)) if offset + 4 <= source.size() else b""
        size = struct.unpack(">I", framed)[0] if framed else 0
        content = _stored(location, {"sizeInBytes": size, "offset": offset})
        return _bitmap(content), size
    except (ValueError, IndexError, FileNotFoundError) as error:
        raise _damaged(location, error) from error


def _framed(content: bytes) -> bytes:
    """A vector as files have it: between its length and its checksum."""
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def _content(bitmap: BitMap64) -> bytes:
    """A vector's bytes, with runs of rows as ranges."""
    return _MAGIC + BitMap64(bitmap, optimize=True).serialize()


def _is_large(content: bytes) -> bool:
    return len(content) > INLINE_BYTES


def _inline(vector: Mapping[str, Any]) -> bytes:
    """The bytes of a vector in the log, without the padding of its encoding."""
    content, size = decode_z85(vector["pathOrInlineDv"]), vector["sizeInBytes"]
    if not 0 <= len(content) - size < 4:  # noqa: PLR2004  (Z85 encodes four bytes at a time)
        raise ValueError(f"it has {len(content)} bytes, not {size}")
    return content[:size]


def _stored(location: str, vector: Mapping[str, Any]) -> bytes:
    """The bytes of a vector in a file, read as one range; its length and checksum surround them."""
    size, offset = vector["sizeInBytes"], vector.get("offset")
    offset = len(_FORMAT) if offset is None else offset
    with files.reading(location) as source:
        is_inside = 0 <= offset <= offset + size + 8 <= source.size()
        framed = bytes(source.read_at(size + 8, offset)) if is_inside else b""
    if framed[:4] != struct.pack(">I", size):
        raise ValueError(f"the file has no vector of {size} bytes at offset {offset}")
    content = framed[4:-4]
    if framed[-4:] != struct.pack(">I", zlib.crc32(content)):
        raise ValueError(f"the checksum at offset {offset} contradicts it")
    return content


def _bitmap(content: bytes) -> BitMap64:
    if content[:4] != _MAGIC:
        raise ValueError("it is not in the portable format of Roaring bitmaps")
    return BitMap64.deserialize(content[4:])


def _positions(content: bytes, cardinality: int) -> BitMap64:
    positions = _bitmap(content)
    if len(positions) != cardinality:
        raise ValueError(f"it has {len(positions)} rows, not {cardinality}")
    return positions


def _damaged(location: str, error: Exception) -> DamagedError:
    why = "it is missing" if isinstance(error, FileNotFoundError) else first_line(error)
    return DamagedError(
        f"{location}: a deletion vector cannot be read ({why}); nothing was changed; restore that file from a copy"
    )
