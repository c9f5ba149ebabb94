"""Durable changes of local directories: fsynced one by one, or by whole file system if there are many."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from pathlib import Path

from retention.storage.errors import as_storage_errors
from retention.storage.parallel import in_threads

MANY = 32
"""The number of directories at which one `syncfs` costs less than an fsync of each."""
_WHOLE = frozenset({"ext4", "xfs"})
"""File systems with a `syncfs` that is known to return only when every directory is on disk."""
_MOUNTS = "/proc/self/mountinfo"
_THREADS = 8


def sync_directory(directory: str) -> None:
    """Make creations, renames and deletions in a local directory durable."""
    with as_storage_errors(directory):
        descriptor = _opened(directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_directories(directories: Collection[str]) -> None:
    """Make creations, renames and deletions in local directories durable, in no particular order."""
    if len(directories) < MANY:
        for directory in sorted(directories):
            sync_directory(directory)
        return
    for _ in in_threads(sync_directory, _not_synced_whole(directories), _THREADS):
        pass


def _not_synced_whole(directories: Collection[str]) -> list[str]:
    """Sync whole file systems where that is safe; returns the directories on other file systems."""
    by_device: dict[int, list[str]] = {}
    for directory in directories:
        with as_storage_errors(directory):
            by_device.setdefault(os.stat(directory).st_dev, []).append(directory)  # noqa: PTH116
    whole = {device for device in by_device if _can_be_synced(device)}
    for device in whole:
        _sync_file_system(by_device[device][0])
    return [
        directory
        for device, there in by_device.items()
        if device not in whole
        for directory in there
    ]


def _can_be_synced(device: int) -> bool:
    """Whether a device has a file system with a `syncfs` that is known to be complete."""
    named = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path(_MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    # man 5 proc: the device is the third word, the type the first one behind a lone hyphen.
    halves = (line.partition(" - ") for line in mounts)
    return any(
        before.split()[2] == named and behind.split()[0] in _WHOLE for before, _, behind in halves
    )


def _sync_file_system(directory: str) -> None:
    """Make everything on the file system of a directory durable (Linux `syncfs`)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with as_storage_errors(directory):
        descriptor = _opened(directory)
        try:
            if libc.syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), directory)
        finally:
            os.close(descriptor)


def _opened(directory: str) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
