"""Locations of the files named in records of runs: each run's removed and added files, and removed ranges."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.storage import files

SUFFIX = ".arrow"
REMOVED = "removed"
"""The name of the record of the files that a run removed."""

RANGES = "ranges"
"""The name of the record of the sequences that it removed."""


def directory_of(opened: OpenedStream) -> str:
    """The directory of a stream's records."""
    return files.join(opened.root, "_retention", "reports")


def undo_location(opened: OpenedStream, run: str, name: str) -> str:
    """The location of the record of a run's `removed` or `added` files, or of its removed `ranges`."""
    return files.join(directory_of(opened), f"{run}.{name}{SUFFIX}")
