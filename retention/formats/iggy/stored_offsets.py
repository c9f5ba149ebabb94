"""Offsets that consumers and groups stored in an Iggy partition: the last message that each has read."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from xxhash import xxh3_64_intdigest

from retention.errors import DamagedError
from retention.formats.iggy.rows import END_OF_OFFSETS
from retention.storage import files

Kind = Literal["consumer", "group"]

_DIRECTORIES: tuple[tuple[str, Kind], ...] = (("consumers", "consumer"), ("groups", "group"))
_PLAIN = struct.Struct("<Q")
_CHECKED = struct.Struct("<QQ")
_MOST_ID = 2**32 - 1
_AGAIN = (
    "nothing was imported; copy the directory again, or delete the file if its consumer is gone"
)


@dataclass(frozen=True)
class StoredOffset:
    """The offset of the last message that a consumer or a group has read."""

    kind: Kind
    id: int
    """Number of the consumer or group; of a named consumer the XXH32 of its name."""
    offset: int


def read_stored_offsets(partition: str) -> tuple[StoredOffset, ...]:
    """Read the stored offsets below a partition's directory, consumers first, in order of id.

    A file holds a little-endian u64, alone or with its XXH3-64 behind it (0.9). A file whose name is not a
    number of 32 bits is no stored offset.

    Raises:
        DamagedError: a file has another length or a wrong checksum, or no message can have its offset.
    """
    offsets = []
    for directory, kind in _DIRECTORIES:
        where = files.join(partition, "offsets", directory)
        ids = sorted(int(name) for name in files.names(where) if _is_id(name))
        offsets += [
            StoredOffset(kind, number, _offset(files.join(where, str(number)))) for number in ids
        ]
    return tuple(offsets)


def _is_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name and int(name) <= _MOST_ID


def _offset(location: str) -> int:
    content = files.read_bytes(location) or b""
    if len(content) not in (_PLAIN.size, _CHECKED.size):
        raise DamagedError(
            f"{location}: a stored offset has 8 or 16 bytes, this one has {len(content)}; {_AGAIN}"
        )
    offset: int = _PLAIN.unpack_from(content)[0]
    checksum = content[_PLAIN.size :]
    if checksum and xxh3_64_intdigest(content[: _PLAIN.size]) != int.from_bytes(checksum, "little"):
        raise DamagedError(f"{location}: the checksum of the stored offset is wrong; {_AGAIN}")
    if offset >= END_OF_OFFSETS:
        raise DamagedError(f"{location}: no message can have the stored offset {offset}; {_AGAIN}")
    return offset
