"""Processes of `retention sync … --follow`, their output, and waits for what they do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 120.0
"""A busy machine gives a follower little of its time."""


class Follower:
    """`retention sync KIND --follow` as a process, and its output in files."""

    def __init__(self, folder: Path, kind: str, words: Sequence[str]) -> None:
        self._out, self._err = folder / "out", folder / "err"
        program = str(Path(sys.executable).with_name("retention"))
        config = str(folder / "retention.yaml")
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [program, "--config", config, "sync", kind, *words, "--follow"],
                stdout=out,
                stderr=err,
            )

    @property
    def said(self) -> str:
        """Its standard error so far."""
        return self._err.read_text()

    @property
    def printed(self) -> str:
        """Its standard output so far."""
        return self._out.read_text()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait for the exit code."""
        self.process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        """Wait for the exit code."""
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        self.process.wait()


@contextmanager
def followers(folder: Path, kind: str) -> Iterator[Callable[..., Follower]]:
    """A function that starts a follower with further words of its command; all are ended after the block."""
    started: list[Follower] = []

    def start(*words: str) -> Follower:
        started.append(Follower(folder, kind, words))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def wait_until(holds: Callable[[], bool], follower: Follower) -> None:
    """Wait until something holds, while the follower runs."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, follower.said
        assert follower.process.poll() is None, follower.said
        time.sleep(0.05)
