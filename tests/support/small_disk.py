"""A file system of a few MiB, and a file that fills it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """Mount a file system of 8 MiB during a block; skip the test where that is not permitted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill_disk(place: Path, leave: int) -> Path:
    """Fill the disk except for `leave` bytes; returns the file that does."""
    filler = place / "filler"
    with filler.open("wb") as sink:
        room = os.statvfs(place)
        sink.write(b"\0" * max(0, room.f_bavail * room.f_frsize - leave))
    return filler
