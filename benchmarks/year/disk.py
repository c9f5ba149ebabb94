"""Disk usage of a stream by kind: files and bytes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from benchmarks.year.workloads import STREAM
from retention.core.subjects import path_name

DEAD, DIGESTS_OF_DEAD = "dead data", "subjects of dead data"


def amounts(warehouse: Path, live: Collection[str]) -> dict[str, dict[str, int]]:
    """Kind → `files` and `bytes` of a stream's directory and of its run history.

    A kind is `live data`, `dead data`, `log`, `history`, or the name of a directory next to the table.

    Args:
        warehouse: its directory.
        live: the paths of the live data files.
    """
    found: dict[str, dict[str, int]] = {}
    for kind, size in _files(warehouse, live):
        amount = found.setdefault(kind, {"files": 0, "bytes": 0})
        amount["files"] += 1
        amount["bytes"] += size
    return dict(sorted(found.items()))


def directories(warehouse: Path) -> int:
    """The number of directories below a stream's."""
    return sum(1 for _ in os.walk(warehouse / "streams" / path_name(STREAM)))


def _files(warehouse: Path, live: Collection[str]) -> Iterator[tuple[str, int]]:
    root = warehouse / "streams" / path_name(STREAM)
    for place, _, names in os.walk(root):
        for name in names:
            file = Path(place, name)
            yield _kind(file.relative_to(root).parts, live), file.stat().st_size
    history = warehouse / "runs" / path_name(STREAM)
    for file in history.rglob("*.*"):
        yield "history" if file.parent == history else "evidence", file.stat().st_size


def _kind(parts: tuple[str, ...], live: Collection[str]) -> str:
    if "_delta_log" in parts or parts[:2] == ("_retention", "log"):
        return "log"
    if parts[0] == "messages":
        return "live data" if "/".join(parts[1:]) in live else DEAD
    if parts[0] != "_retention":
        return parts[0]
    if parts[1] in ("trash", "staging"):
        return DEAD
    is_of_dead = parts[1] == "subjects" and "/".join(parts[2:]) not in live
    return DIGESTS_OF_DEAD if is_of_dead else parts[1]
