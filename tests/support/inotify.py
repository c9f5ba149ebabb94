"""The files opened during a block, from the kernel (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_OPEN = 0x20
IN_ISDIR = 0x40000000
_HEADER = struct.Struct("iIII")


@contextmanager
def opens_below(folder: Path) -> Iterator[list[str]]:
    """Watch every directory below a folder; the list has the opened files after the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.inotify_init1(os.O_NONBLOCK)
    opened: list[str] = []
    try:
        watched = {}
        for directory in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            number = libc.inotify_add_watch(watcher, str(directory).encode(), IN_OPEN)
            if number < 0:
                raise OSError(ctypes.get_errno(), f"inotify_add_watch {directory}")
            watched[number] = directory
        yield opened
        opened += _read(watcher, watched)
    finally:
        os.close(watcher)


def _read(watcher: int, watched: dict[int, Path]) -> Iterator[str]:
    while True:
        try:
            events = os.read(watcher, 1 << 20)
        except BlockingIOError:
            return
        at = 0
        while at < len(events):
            number, mask, _, length = _HEADER.unpack_from(events, at)
            at += _HEADER.size
            name = events[at : at + length].rstrip(b"\0").decode()
            at += length
            if not mask & IN_ISDIR:
                yield str(watched[number] / name)
