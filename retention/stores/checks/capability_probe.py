"""Trials of the storage capabilities that commits need; their files are deleted afterwards."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError

from retention.storage import files
from retention.storage.s3 import object_store

TRIAL = ".retention-trial-"
"""The name prefix of trial directories; one remains only if its trial was killed."""


@contextmanager
def trial_place(directory: str) -> Iterator[str]:
    """Create a trial directory below a directory, and delete it after the block.

    Raises:
        OSError: it cannot be created there.
    """
    place = files.join(directory, f"{TRIAL}{uuid.uuid4().hex}")
    if not files.is_remote(place):
        Path(place).mkdir()
    try:
        yield place
    finally:
        if files.is_remote(place):
            files.delete_directory(place)
        else:
            for entry in Path(place).iterdir():
                entry.unlink()
            Path(place).rmdir()


def write_and_read(place: str) -> int:
    """Create, read back and list a file; return its modification time, milliseconds since the epoch.

    Raises:
        OSError: the storage refuses, or returns something else.
    """
    location, content = files.join(place, "written"), uuid.uuid4().bytes
    files.replace(location, content)
    if files.read_bytes(location) != content or files.names(place) != ["written"]:
        raise OSError(f"{location}: what was written is not what is read back")
    modified = files.stat(location)[1]
    files.delete([location])
    return modified


def links_exclude(place: str) -> bool:
    """Whether the second of two writers that create one file by hard link is refused."""
    location = files.join(place, uuid.uuid4().hex)
    first, second = (files.create_if_absent(location, content) for content in (b"1", b"2"))
    return first and not second and files.read_bytes(location) == b"1"


def renames_last(place: str) -> bool:
    """Whether a rename and its directory can be made durable."""
    source, target = files.join(place, "from"), files.join(place, "to")
    files.replace(source, b"moved")
    files.move([(source, target)])
    return files.read_bytes(target) == b"moved" and files.length(source) is None


def locks_exclude(place: str) -> bool:
    """Whether a second lock on a file is refused while the first is held."""
    with _descriptor(place) as first, _descriptor(place) as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def commits_exclude(place: str) -> bool:
    """Whether the second of two commits of one version is refused.

    On an object store, two conditional puts of one key are tried. No put looks for the key first, so the store alone
    decides.

    Raises:
        ObjectStoreError: the store answered something else, or nothing.
    """
    if not files.is_remote(place):
        return links_exclude(place)
    location = files.join(place, "put")
    answers = [_is_put(location, content) for content in (b"1", b"2")]
    # After a lost response, the retry of the first put meets its own content.
    return not answers[1] and files.read_bytes(location) == b"1"


def _is_put(location: str, content: bytes) -> bool:
    store, key = object_store(location)
    try:
        obstore.put(store, key, content, mode="create")
    except AlreadyExistsError:
        return False
    return True


def local_abilities() -> dict[str, Callable[[str], bool]]:
    """The capabilities that a local file system must have, by name."""
    return {"hard links": links_exclude, "renames": renames_last, "locks": locks_exclude}


@contextmanager
def _descriptor(place: str) -> Iterator[int]:
    descriptor = os.open(files.join(place, "lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
