"""Parts passed from one function to another in this process, in one file that is deleted with the process."""

from __future__ import annotations

import os
import tempfile
from threading import Lock

from retention.storage.errors import as_storage_errors


class Spool:
    """Parts by key, from any number of threads."""

    def __init__(self, directory: str | None = None) -> None:
        """Make the file in a directory, by default that of temporary files."""
        self._directory = directory or tempfile.gettempdir()
        with as_storage_errors(self._directory):
            self._file = tempfile.TemporaryFile(  # noqa: SIM115  (closed by `close`)
                prefix="retention-", dir=self._directory
            )
        self._end = 0
        self._places: dict[int, list[tuple[int, int, int]]] = {}
        """Key → sender, offset and length of each part."""
        self._lock = Lock()

    def put(self, sender: int, key: int, content: bytes) -> None:
        """Store one part; the parts of a key are returned in order of their senders."""
        with self._lock:
            offset = self._end
            self._end += len(content)
            self._places.setdefault(key, []).append((sender, offset, len(content)))
        with as_storage_errors(self._directory):
            written = 0
            while written < len(content):
                written += os.pwrite(
                    self._file.fileno(), memoryview(content)[written:], offset + written
                )

    @property
    def keys(self) -> list[int]:
        """The keys with parts, ascending."""
        return sorted(self._places)

    def parts(self, key: int) -> list[bytes]:
        """The contents of one key, in order of their senders."""
        with as_storage_errors(self._directory):
            return [
                os.pread(self._file.fileno(), length, offset)
                for _, offset, length in sorted(self._places[key])
            ]

    def close(self) -> None:
        """Discard the parts and free their space."""
        self._file.close()
