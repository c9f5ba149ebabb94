"""Scratch directories for large results of tasks, deleted when the last reference to them ends."""

from __future__ import annotations

import uuid
from dataclasses import replace

import numpy as np

from retention.context.context import OpenedStream
from retention.core.spans import Array
from retention.engine_port import Engine
from retention.plan.removed_ranges import RemovedRanges, StoredPart, store_ranges
from retention.storage import files
from retention.storage.scratch_files import ScratchDirectory, local_directory, new_place

DIRECTORY = "exchange"
"""The engine's directory for files of Spark tasks; a killed process leaves its files there."""


def new_scratch(opened: OpenedStream, engine: Engine) -> ScratchDirectory:
    """Create a directory that all tasks of an engine can access.

    Raises:
        OSError: it cannot be created.
    """
    if engine.name == "local":
        return local_directory()
    location = files.join(shared_directory(opened), uuid.uuid4().hex)
    files.make_directory(location)
    return ScratchDirectory(location)


def within_reach(
    opened: OpenedStream, engine: Engine, ranges: RemovedRanges, numbers: Array
) -> RemovedRanges:
    """The ranges of some files, by row numbers, at a location that all tasks of an engine can read.

    Ranges of a saved plan are in files of this process only.

    Raises:
        StalePlanError: some are deleted.
        OSError: the ranges cannot be written.
    """
    if not ranges.parts:
        return ranges
    parts = [part for part in ranges.parts if np.isin(part.files, numbers).any()]
    shared = f"{shared_directory(opened)}/"
    if engine.name != "local" and any(not _lies_below(shared, part) for part in parts):
        scratch = new_scratch(opened, engine)
        parts = [part if _lies_below(shared, part) else _copied(part, scratch) for part in parts]
    return RemovedRanges(ranges.in_memory, tuple(parts))


def _copied(part: StoredPart, scratch: ScratchDirectory) -> StoredPart:
    stored = store_ranges(part.read(), new_place(scratch.location, "ranges"))
    return StoredPart.of(replace(stored, owner=scratch))


def _lies_below(directory: str, part: StoredPart) -> bool:
    return part.stored.place.startswith(directory)


def shared_directory(opened: OpenedStream) -> str:
    """The parent of all directories that tasks of Spark can access."""
    return opened.layout.engine_path(DIRECTORY)
