"""The SHA-256 of files: taken while bytes are written, so that they are not read again for it, or of a stored file."""

from __future__ import annotations

import hashlib
import io
from typing import Any

from retention.storage import files

PIECE_BYTES = 8 << 20
"""The bytes of a file that are read at once."""


def digest_of_file(location: str) -> str:
    """The SHA-256 of a stored file in hexadecimal, read one piece at a time.

    Raises:
        FileNotFoundError: it is missing.
        StorageError: it cannot be read.
    """
    digest = hashlib.sha256()
    for piece in files.chunks(location, PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


class DigestingSink(io.RawIOBase):
    """Passes bytes on to a sink, and to a digest; closing it leaves the sink open."""

    def __init__(self, sink: Any, digest: hashlib._Hash) -> None:
        """Begin at the start of a new file.

        Args:
            sink: an open file of Arrow or Python.
            digest: gets all bytes, in order.
        """
        self._sink = sink
        self._digest = digest

    def writable(self) -> bool:
        """Return True: bytes are only written."""
        return True

    def write(self, content: Any) -> int:
        """Write bytes; returns their number."""
        self._digest.update(content)
        self._sink.write(content)
        return len(content)

    def tell(self) -> int:
        """The number of bytes written."""
        position: int = self._sink.tell()
        return position
