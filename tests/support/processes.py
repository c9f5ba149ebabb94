"""Processes of a job and their descendants, identified by a mark in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MARK = "RETENTION_TEST_MARK"


class Started:
    """A command started in a folder, optionally with more environment variables, and its descendants."""

    def __init__(
        self, command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None
    ) -> None:
        self._mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), _MARK: self._mark} | dict(more or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def living(self, named: str = "") -> list[int]:
        """The live processes, optionally only programs with this in their name."""
        mark = f"{_MARK}={self._mark}".encode()
        numbers = (path.name for path in Path("/proc").iterdir())
        return [int(pid) for pid in numbers if pid.isdigit() and _is(int(pid), mark, named)]

    def send(self, number: int, named: str) -> bool:
        """Send a signal to the first process with a matching name; False if there is none."""
        for pid in self.living(named)[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                return True
        return False

    def end(self) -> tuple[int, str]:
        """Wait for its end; returns its exit code, and its output."""
        said, _ = self.process.communicate(timeout=300)
        return self.process.returncode, said

    def kill_all(self) -> None:
        """Kill every live process of it, stopped ones too, until there is none."""
        while living := self.living():
            for pid in living:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def left_behind(self, patience_s: float) -> list[str]:
        """The programs of processes that are still alive after `patience_s`."""
        until = time.monotonic() + patience_s
        while self.living() and time.monotonic() < until:
            time.sleep(0.05)
        return [_program(pid) for pid in self.living()]


def python() -> str:
    """This Python."""
    return sys.executable


def _is(pid: int, mark: bytes, named: str) -> bool:
    with suppress(OSError):
        is_dead = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        marked = mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return marked and not is_dead and named in _program(pid)
    return False


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""
