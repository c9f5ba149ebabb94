"""Directories in which tasks leave what is too much for who plans, until nobody refers to it any more."""

from __future__ import annotations

import tempfile
import uuid
import weakref
from contextlib import suppress
from pathlib import Path

from retention.context.context import OpenedStream
from retention.engine_port import Engine
from retention.storage import files
from retention.stores.layout import Layout

DIRECTORY = "exchange"
"""Directory among the engine's own in which Spark tasks leave files; a process that is killed leaves its part."""


class Scratch:
    """A new directory that all tasks reach; it is deleted with the object, at the latest when the process ends."""

    def __init__(self, opened: OpenedStream, engine: Engine) -> None:
        """Make the directory.

        Raises:
            OSError: it cannot be made.
        """
        if engine.name == "local":
            self.location = tempfile.mkdtemp(prefix="retention-")
        else:
            self.location = Layout(opened.root, opened.name).engine_path(
                DIRECTORY, uuid.uuid4().hex
            )
            files.make_directory(self.location)
        self._clear = weakref.finalize(self, _clear, self.location)

    def close(self) -> None:
        """Delete the directory now."""
        self._clear()


def new_place(directory: str, name: str) -> str:
    """A place in a directory that no other attempt at a task has."""
    return files.join(directory, f"{name}-{uuid.uuid4().hex}.arrow")


def _clear(location: str) -> None:
    files.delete(files.join(location, path) for path in files.walk(location))
    if not files.is_remote(location):
        with suppress(OSError):
            Path(location).rmdir()
