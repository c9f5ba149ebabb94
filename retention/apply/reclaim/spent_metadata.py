"""Notes and directories beside a stream's table that are no longer needed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from retention.core.reclaim import DeadFile
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout

_SEGMENT = re.compile(r"partition=(\d+)/segment=(\d+)")
_BESIDE = ("staging", "trash", "subjects")


def delete_spent(locations: Collection[str]) -> None:
    """Delete notes that are no longer needed."""
    if locations:
        files.delete(locations)
        reached(Step.SPENT_DELETED)


def remove_emptied(layout: Layout, dead: Iterable[DeadFile], open_base: Mapping[int, int]) -> None:
    """Remove the empty directories of sealed segments that contained dead files.

    Appends go to the open segment, whose directories are kept. A writer to a sealed one creates its directory again.

    Args:
        layout: the stream's layout; an object store has no directories.
        dead: deleted files.
        open_base: partition → the base of its open segment.
    """
    if files.is_remote(layout.root):
        return
    for directory in sorted({file.path.rpartition("/")[0] for file in dead}):
        parts = _SEGMENT.fullmatch(directory)
        if parts is None or int(parts[2]) >= open_base.get(int(parts[1]), 0):
            continue
        if files.remove_directory(layout.live(directory)):
            for kind in _BESIDE:
                files.remove_directory(layout.engine_path(kind, directory))
