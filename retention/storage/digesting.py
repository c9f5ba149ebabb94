"""A sink that takes the SHA-256 of bytes while they are written, so that nobody has to read them again for it."""

from __future__ import annotations

import hashlib
import io
from typing import Any


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
