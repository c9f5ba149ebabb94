"""Paths of data files under a deletion vector: the path of the file and the place of its vector, as one name.

A file under a vector is another file to every part of the engine: it has statistics, pins and records of its own. Only
what opens, commits or deletes files asks for its parts.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

VECTOR_MARK = ".dv-"
"""The text that every path under a vector has, and hardly any other."""
_UNDER_VECTOR = re.compile(r"(?P<data>.+)\.dv-(?P<offset>\d+)-(?P<file>[0-9a-f]{32})")
_BIN = "deletion_vector_"
NAME_OF_VECTOR = r"(?:\.dv-\d+-[0-9a-f]{32})?"
"""A pattern for the end of a path that names a vector, or none."""


@dataclass(frozen=True)
class VectorPlace:
    """The place of a deletion vector: a file in the table's directory, and an offset in it."""

    file: str
    """The UUID of the file, as 32 hex digits."""
    offset: int

    @property
    def path(self) -> str:
        """The file's path, relative to the table (Delta protocol, storage type `u`)."""
        return f"{_BIN}{uuid.UUID(self.file)}.bin"


def under_vector(path: str, place: VectorPlace) -> str:
    """The path of a data file under a vector.

    >>> under_vector("partition=0/segment=1/a.parquet", VectorPlace("5ca1ab1e" * 4, 1))
    'partition=0/segment=1/a.parquet.dv-1-5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e'
    """
    return f"{path}{VECTOR_MARK}{place.offset}-{place.file}"


def data_path(path: str) -> str:
    """The path of the data file itself.

    >>> data_path("a.parquet.dv-1-5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e"), data_path("a.parquet")
    ('a.parquet', 'a.parquet')
    """
    parts = _parts(path)
    return path if parts is None else parts["data"]


def vector_place(path: str) -> VectorPlace | None:
    """The place of a file's vector; None for a file without one."""
    parts = _parts(path)
    return None if parts is None else VectorPlace(parts["file"], int(parts["offset"]))


def stored_files(path: str) -> tuple[str, ...]:
    """The paths of all files of the storage that a path stands for: the data file, and the file with its vector."""
    place = vector_place(path)
    return (path,) if place is None else (data_path(path), place.path)


def all_stored(paths: Iterable[str]) -> set[str]:
    """The paths of all files of the storage that some paths stand for."""
    return {stored for path in paths for stored in stored_files(path)}


def paths_of_slot(slot: str, names: Iterable[str]) -> list[str]:
    """The paths under a vector that begin with `slot`, and whose vector's file is among `names`.

    Args:
        slot: a path without the last 16 hex digits of its vector's file, as `core.inventory.slot_of`.
        names: files in the table's directory.
    """
    digits = slot.rpartition("-")[2]
    numbers = (
        name.removeprefix(_BIN).removesuffix(".bin").replace("-", "")
        for name in names
        if name.startswith(_BIN)
    )
    return [slot + number.removeprefix(digits) for number in numbers if number.startswith(digits)]


def _parts(path: str) -> re.Match[str] | None:
    return _UNDER_VECTOR.fullmatch(path) if VECTOR_MARK in path else None
