"""The SHA-256 of files: taken while bytes are written, so that they are not read again for it, or of a stored file."""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from retention.storage import files

PIECE_BYTES = 8 << 20
"""The bytes of a file that are read at once."""
_BESIDE_BYTES = 256 << 10
"""The bytes from which on a thread beside pays off."""
_MOST_PASSING = 4
"""The most hand-overs to that thread that wait, each of a column of a row group, or of `_BESIDE_BYTES`."""


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


class SinkBeside(io.RawIOBase):
    """Passes bytes on to a sink, in a thread of its own once there are many; see `digesting_beside`."""

    def __init__(self, sink: DigestingSink, thread: ThreadPoolExecutor) -> None:
        self._sink, self._thread = sink, thread
        self._held: list[bytes] = []
        self._held_bytes = self._position = 0
        self._passing: deque[Future[None]] = deque()

    def writable(self) -> bool:
        """Return True: bytes are only written."""
        return True

    def write(self, content: Any) -> int:
        """Write bytes; returns their number. An error of earlier bytes is raised here."""
        self._held.append(bytes(content))
        self._held_bytes += len(content)
        self._position += len(content)
        if self._held_bytes >= _BESIDE_BYTES:
            while len(self._passing) >= _MOST_PASSING:
                self._passing.popleft().result()
            self._passing.append(self._thread.submit(self._pass_on, self._taken()))
        return len(content)

    def tell(self) -> int:
        """The number of bytes written."""
        return self._position

    def settle(self) -> None:
        """Wait until all bytes are passed on; an error is raised here."""
        while self._passing:
            self._passing.popleft().result()
        self._sink.write(b"".join(self._taken()))

    def _taken(self) -> list[bytes]:
        pieces, self._held, self._held_bytes = self._held, [], 0
        return pieces

    def _pass_on(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._sink.write(piece)


@contextmanager
def digesting_beside(sink: Any, digest: hashlib._Hash) -> Iterator[SinkBeside]:
    """A sink whose bytes go to a digest and to another sink beside the caller's work; all have gone after the block.

    Args:
        sink: an open file of Arrow or Python; it stays open.
        digest: gets all bytes, in order.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="digest") as thread:
        beside = SinkBeside(DigestingSink(sink, digest), thread)
        yield beside
        beside.settle()
