"""A clock that stands until it is moved, and by which the storage tells the times of its files as well."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from retention.storage import files

START = 4_000_000_000 * 10**9
"""Later than every real time that others stamp into logs: what those say makes nothing older, and nothing younger."""
_MS = 1_000_000


class StoppedClock:
    """Nanoseconds since the epoch; files that are written between two moves have the time in between."""

    def __init__(self, probe: Path, start_ns: int = START) -> None:
        """Take a place for a file by which to read the storage's own clock."""
        self._probe = probe
        self.now_ns = start_ns
        self._real_ms = [0]
        self._shown_ns = [start_ns]

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, by_ns: int) -> None:
        """Go on; the storage's own clock has ticked when this returns, so that no file can be of either time."""
        before = self._storage_ms()
        # A storage that reads a finer clock for some files than for others is a millisecond ahead at most.
        while (real := self._storage_ms()) <= before + 1:
            time.sleep(0.0005)
        self.now_ns += by_ns
        self._real_ms.append(real)
        self._shown_ns.append(self.now_ns)

    @contextmanager
    def rules_the_storage(self) -> Iterator[None]:
        """Let the engine read the times of files by this clock."""
        real_stat, real_times = files.stat, files.times

        def stat(location: str) -> tuple[int, int]:
            length, at_ms = real_stat(location)
            return length, self._shown_ms(at_ms)

        def times(directory: str) -> dict[str, int]:
            return {name: self._shown_ms(at_ms) for name, at_ms in real_times(directory).items()}

        with patch.object(files, "stat", stat), patch.object(files, "times", times):
            yield

    def _storage_ms(self) -> int:
        self._probe.write_bytes(b"")
        return self._probe.stat().st_mtime_ns // _MS

    def _shown_ms(self, real_ms: int) -> int:
        return self._shown_ns[bisect_right(self._real_ms, real_ms) - 1] // _MS
