"""Bytes of a log file by position, read with only one piece in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from retention.errors import BusyError
from retention.storage import files
from retention.storage.errors import as_storage_errors

WINDOW_BYTES = 1 << 20
"""The size of the pieces in which logs are read; a longer record is read at its own size."""
_GONE = "it was deleted after the directory was listed"


@dataclass(frozen=True)
class OpenLog:
    """An open log and its size when it was listed; a server may append more."""

    location: str
    size: int
    file: pa.NativeFile

    def read(self, at: int, length: int) -> bytes:
        """Read the bytes from `at` on, fewer at the end.

        Raises:
            BusyError: the file was truncated after it was listed.
            StorageError: the storage failed.
        """
        wanted = max(0, min(length, self.size - at))
        with as_storage_errors(self.location):
            content: bytes = self.file.read_at(wanted, at)
        if len(content) < wanted:
            raise _changed(self.location, "it became shorter while it was read")
        return content

    def windows(self, at: int, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Yield pieces from `at` to the end and their positions; each begins `overlap` bytes before the last ends."""
        while at < self.size:
            window = self.read(at, WINDOW_BYTES)
            yield at, window
            at += max(1, len(window) - overlap) if at + len(window) < self.size else len(window)


@contextmanager
def opened(location: str, size: int) -> Iterator[OpenLog]:
    """Open a log for reading.

    Raises:
        BusyError: the log disappeared since it was listed.
        StorageError: the storage failed.
    """
    try:
        file = files.open_input(location)
    except FileNotFoundError as error:
        raise _changed(location, _GONE) from error
    with as_storage_errors(location), file:
        yield OpenLog(location, size, file)


def size_of(location: str) -> int:
    """The size of a log in bytes.

    Raises:
        BusyError: the log disappeared since it was listed.
        StorageError: the storage failed.
    """
    size = files.length(location)
    if size is None:
        raise _changed(location, _GONE)
    return size


def _changed(location: str, what: str) -> BusyError:
    return BusyError(
        f"{location}: {what}; nothing was imported; stop the server, or copy its directory and read the copy"
    )
