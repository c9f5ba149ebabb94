"""Trying what commits need of a place, with files that are gone afterwards."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties

from retention import files

_COLUMN = pa.schema([pa.field("tried", pa.int64())])
_LOG = "_delta_log"


@contextmanager
def trial_place(directory: str) -> Iterator[str]:
    """A new place below a directory, emptied and gone after the block.

    Raises:
        OSError: it cannot be made there.
    """
    place = files.join(directory, f".retention-doctor-{uuid.uuid4().hex}")
    if not files.is_remote(place):
        Path(place).mkdir()
    try:
        yield place
    finally:
        for inside in (files.join(place, _LOG), place):
            _empty(inside)


def write_and_read(place: str) -> int:
    """Create, read back and list a file; its modification time, milliseconds since the epoch.

    Raises:
        OSError: the place does not let it, or gives back something else.
    """
    location, content = files.join(place, "written"), uuid.uuid4().bytes
    files.replace(location, content)
    if files.read_bytes(location) != content or files.names(place) != ["written"]:
        raise OSError(f"{location}: what was written is not what is read back")
    modified = files.stat(location)[1]
    files.delete([location])
    return modified


def links_exclude(place: str) -> bool:
    """Whether of two writers that create one file by hard link the second is refused."""
    location = files.join(place, "entry")
    first, second = (files.create_if_absent(location, content) for content in (b"1", b"2"))
    return first and not second and files.read_bytes(location) == b"1"


def renames_last(place: str) -> bool:
    """Whether a rename, and the directory that it happened in, can be made durable."""
    source, target = files.join(place, "from"), files.join(place, "to")
    files.replace(source, b"moved")
    files.move([(source, target)])
    return files.read_bytes(target) == b"moved" and files.length(source) is None


def locks_exclude(place: str) -> bool:
    """Whether a second lock on a file is refused while the first is held."""
    with _descriptor(place) as one, _descriptor(place) as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def commits_exclude(place: str) -> bool:
    """Whether of two Delta commits of the same version the second is refused; on S3, a conditional put."""
    options = files.storage_options() if files.is_remote(place) else None
    DeltaTable.create(place, _COLUMN, storage_options=options)
    first, second = (DeltaTable(place, storage_options=options) for _ in range(2))
    _commit(first)
    try:
        _commit(second)
    except CommitFailedError:
        return True
    return False


def local_abilities() -> dict[str, Callable[[str], bool]]:
    """What a local file system must be able to do, by name."""
    return {"hard links": links_exclude, "renames": renames_last, "locks": locks_exclude}


def _commit(table: DeltaTable) -> None:
    once = CommitProperties(max_commit_retries=0)
    table.create_write_transaction([], "append", _COLUMN, commit_properties=once)


@contextmanager
def _descriptor(place: str) -> Iterator[int]:
    descriptor = os.open(files.join(place, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _empty(directory: str) -> None:
    if files.is_remote(directory):
        files.delete(files.join(directory, name) for name in files.names(directory))
    elif Path(directory).is_dir():
        for entry in Path(directory).iterdir():
            entry.unlink()
        Path(directory).rmdir()
