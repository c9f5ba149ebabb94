"""A manual clock, which also supplies the storage times of files."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from retention.storage import files

START = 4_000_000_000 * 10**9
"""Later than all real timestamps in logs, so that these do not affect any age."""
_MS = 1_000_000


class StoppedClock:
    """A clock in nanoseconds since the epoch; files written between two advances have the time in between."""

    def __init__(self, probe: Path, start_ns: int = START) -> None:
        """Set the path of a probe file to read the storage's own clock."""
        self._probe = probe
        self.now_ns = start_ns
        self._real_ms = [0]
        self._shown_ns = [start_ns]

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, by_ns: int) -> None:
        """Advance, and wait for a tick of the storage's own clock, so that no file can belong to both times."""
        before = self._storage_ms()
        # A storage with a finer clock for some files is at most a millisecond ahead.
        while (real := self._storage_ms()) <= before + 1:
            time.sleep(0.0005)
        self.now_ns += by_ns
        self._real_ms.append(real)
        self._shown_ns.append(self.now_ns)

    @contextmanager
    def rules_the_storage(self) -> Iterator[None]:
        """Make the engine read file times by this clock."""
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
