"""What a piece of work costs: seconds, and the bytes that this process and its children read and wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Cost:
    """The cost of one run.

    Bytes are `rchar` and `wchar` of `/proc/<pid>/io`, summed over the process and its descendants: what passed
    through read and write calls, from the page cache or not. Pages of memory-mapped files are not in it. None
    where the system does not count.
    """

    seconds: float
    bytes_read: int | None
    bytes_written: int | None


def measure(work: Callable[[], None]) -> Cost:
    """Do the work and tell what it cost."""
    before = _bytes()
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    after = _bytes()
    if before is None or after is None:
        return Cost(seconds, None, None)
    return Cost(seconds, after[0] - before[0], after[1] - before[1])


def _bytes() -> tuple[int, int] | None:
    if not (_PROC / "self" / "io").exists():
        return None
    counts = [_counts(directory) for directory in _tree(_PROC / "self")]
    return sum(count["rchar"] for count in counts), sum(count["wchar"] for count in counts)


def _counts(directory: Path) -> dict[str, int]:
    lines = (directory / "io").read_text(encoding="ascii").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def _tree(directory: Path) -> Iterator[Path]:
    yield directory
    for listed in directory.glob("task/*/children"):
        for child in listed.read_text(encoding="ascii").split():
            yield from _tree(_PROC / child)
