"""Measurement of a piece of work: seconds, processor time, and the bytes moved by this process and its children."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
_TIMES = slice(11, 15)
"""Fields after the command's name in `/proc/<pid>/stat`: times of the process and its ended children, in ticks."""

_FORGET_PEAK = "5"
"""The value for `/proc/<pid>/clear_refs` that resets the peak."""


@dataclass(frozen=True)
class Cost:
    """The cost of one run, of this process and all its descendants (a JVM, Spark's Python workers).

    Bytes are `rchar` and `wchar` of `/proc/<pid>/io`: all bytes of read and write calls, from the
    page cache or not, without pages of memory-mapped files. None if the system does not count them.
    """

    seconds: float
    cpu_seconds: float
    bytes_read: int | None
    bytes_written: int | None


def measure(work: Callable[[], object]) -> Cost:
    """Do the work and return its cost."""
    moved, used, started = _moved(), _used(), time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    used, moved_since = _used() - used, _moved()
    if moved is None or moved_since is None:
        return Cost(seconds, used, None, None)
    return Cost(seconds, used, moved_since[0] - moved[0], moved_since[1] - moved[1])


class Watch:
    """The peak resident memory of a process and its descendants, sampled twenty times a second."""

    def __init__(self, root: Path = _PROC / "self") -> None:
        self._root = root.resolve()
        self._peaks: dict[tuple[str, str], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        for process in tree(self._root):
            with suppress(OSError):
                forget_peak(process)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def peaks(self) -> dict[str, float]:
        """The peak of each kind of process, MiB: `driver` (the watched process), `java`, `worker` (of Python)."""
        largest: dict[str, float] = {}
        for (kind, _), peak in self._peaks.items():
            largest[kind] = max(peak, largest.get(kind, 0))
        return largest

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for process in tree(self._root):
                with suppress(OSError, IndexError):
                    key = self._kind(process), process.name
                    self._peaks[key] = max(peak_mebibytes(process), self._peaks.get(key, 0))

    def _kind(self, process: Path) -> str:
        if process == self._root:
            return "driver"
        # A JVM that forks a program is counted twice until the program has its own memory.
        return "worker" if _name(process).startswith("python") else _name(process)


def server_process() -> Path:
    """The directory in `/proc` of the nats-server started by this process."""
    return next(found for found in tree(_PROC / "self") if _name(found) == "nats-server")


def forget_peak(process: Path) -> None:
    """Reset the peak memory of a process."""
    (process / "clear_refs").write_text(_FORGET_PEAK)


def peak_mebibytes(process: Path) -> float:
    """The largest resident memory of a process, in MiB."""
    status = (process / "status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def resident_mebibytes(process: Path) -> float:
    """The resident memory of a process now, in MiB."""
    status = (process / "status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def used_seconds(process: Path) -> float:
    """Processor seconds of a process and its ended children."""
    return _ticks(process) / os.sysconf("SC_CLK_TCK")


def _name(process: Path) -> str:
    return (process / "comm").read_text(encoding="utf-8").strip()


def measure_other(process: Path, work: Callable[[], None]) -> Cost:
    """Run work in another process, and return its cost there.

    Args:
        process: its directory in `/proc`.
        work: starts the work, and returns when it is done.
    """
    moved, used, started = _moved(process), _ticks(process), time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    cpu_seconds = (_ticks(process) - used) / os.sysconf("SC_CLK_TCK")
    moved_since = _moved(process)
    if moved is None or moved_since is None:
        return Cost(seconds, cpu_seconds, None, None)
    return Cost(seconds, cpu_seconds, moved_since[0] - moved[0], moved_since[1] - moved[1])


def _moved(process: Path = _PROC / "self") -> tuple[int, int] | None:
    if not (process / "io").exists():
        return None
    counts = [count for directory in tree(process) for count in _counts(directory)]
    return sum(count["rchar"] for count in counts), sum(count["wchar"] for count in counts)


def _counts(directory: Path) -> Iterator[dict[str, int]]:
    # A Spark worker may end between being listed and being read.
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = (directory / "io").read_text(encoding="ascii").splitlines()
        yield {name: int(value) for name, value in (line.split(": ") for line in lines)}


def _used() -> float:
    ended = os.times()
    running = [_ticks(process) for child in _children(_PROC / "self") for process in tree(child)]
    return (
        time.process_time()
        + ended.children_user
        + ended.children_system
        + sum(running) / os.sysconf("SC_CLK_TCK")
    )


def _ticks(directory: Path) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = (directory / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(int(field) for field in fields[_TIMES])
    return 0


def tree(directory: Path) -> Iterator[Path]:
    """The directories in `/proc` of a process and its descendants."""
    yield directory
    for child in _children(directory):
        yield from tree(child)


def _children(directory: Path) -> Iterator[Path]:
    try:
        threads = list((directory / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):
            listed = (thread / "children").read_text(encoding="ascii")
            yield from (_PROC / child for child in listed.split())
