"""Directories as values, and damage to files that only their content reveals."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, with a digest of its content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def scramble(path: Path, random: np.random.Generator) -> None:
    """Replace the content by random bytes, with unchanged length and modification time."""
    overwrite(path, random.bytes(path.stat().st_size))


def overwrite(path: Path, content: bytes) -> None:
    """Replace the content, with unchanged modification time."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
