"""Places of the files that records of runs name: what each removed, added and took."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.storage import files

SUFFIX = ".arrow"
REMOVED = "removed"
"""The name of the record of the files that a run removed."""

RANGES = "ranges"
"""The name of the record of the sequences that it took."""


def directory_of(opened: OpenedStream) -> str:
    """The directory of a stream's records."""
    return files.join(opened.root, "_retention", "reports")


def undo_location(opened: OpenedStream, run: str, name: str) -> str:
    """The location of the record of a run's `removed` or `added` files, or of the `ranges` that it took."""
    return files.join(directory_of(opened), f"{run}.{name}{SUFFIX}")
