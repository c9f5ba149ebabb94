"""The erasures of a stream or table, by the names of their files alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from retention.storage import files

RECORD = ".json"
REPORT = ".report.json"
NEEDLES = ".needles"


@dataclass(frozen=True)
class ListedErasures:
    """The ids of erasures, oldest first."""

    ids: list[str]
    unfinished: list[str]
    """The ids of the unfinished ones: without a report, or still with needles."""


def listed_erasures(root: str) -> ListedErasures:
    """The erasures of the stream or table with records below `root`, in one listing."""
    names = set(files.names(directory_of(root)))
    ids = ids_among(names)
    unfinished = [
        erasure for erasure in ids if erasure + REPORT not in names or erasure + NEEDLES in names
    ]
    return ListedErasures(ids, unfinished)


def directory_of(root: str) -> str:
    """The directory of the records of erasures below `root`."""
    return files.join(root, "_retention", "erasures")


def ids_among(names: Iterable[str]) -> list[str]:
    """The ids of the erasures whose records are among some names of files, oldest first."""
    return sorted(
        name.removesuffix(RECORD)
        for name in names
        if name.endswith(RECORD) and not name.endswith(REPORT)
    )
