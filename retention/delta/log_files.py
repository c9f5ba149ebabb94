"""Names of the files in a Delta log."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from retention.storage import files
from retention.storage.errors import as_storage_errors

_DIRECTORY = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint\.(?:parquet|(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|[0-9a-fA-F-]{36}\.(?:json|parquet))"
)


@dataclass(frozen=True)
class LogListing:
    """The versions with an entry, and the file names of the newest complete checkpoint of each version."""

    entries: frozenset[int]
    checkpoints: dict[int, tuple[str, ...]]


def log_directory(root: str) -> str:
    """The directory of the log of a table at `root`."""
    return files.join(root, _DIRECTORY)


def has_log(root: str) -> bool:
    """Whether a local directory is that of a Delta table.

    Raises:
        StorageError: the directory cannot be read.
    """
    with as_storage_errors(root, FileNotFoundError, NotADirectoryError):
        try:
            Path(log_directory(root)).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def entry_place(root: str, version: int) -> str:
    """The location of a version's entry."""
    return files.join(log_directory(root), f"{version:020d}.json")


def checkpoint_place(root: str, name: str) -> str:
    """The location of a checkpoint file."""
    return files.join(log_directory(root), name)


def sidecar_place(root: str, path: str) -> str:
    """The location of a sidecar, which a checkpoint names by an escaped path of any form."""
    return files.join(log_directory(root), "_sidecars", unquote(path).rpartition("/")[2])


def list_log(root: str) -> LogListing:
    """The listing of a table's log; without entries and checkpoints if there is none."""
    entries: set[int] = set()
    named: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in files.names(log_directory(root)):
        if entry := _ENTRY.fullmatch(name):
            entries.add(int(entry[1]))
        elif checkpoint := _CHECKPOINT.fullmatch(name):
            named[int(checkpoint[1])][int(checkpoint["parts"] or 1)].append(name)
    return LogListing(
        frozenset(entries),
        {
            version: complete
            for version, by_parts in named.items()
            if (complete := _complete(by_parts)) is not None
        },
    )


def _complete(by_parts: dict[int, list[str]]) -> tuple[str, ...] | None:
    """One complete checkpoint of a version, given its files by the number of parts; None if all lack a part."""
    for parts, names in sorted(by_parts.items()):
        if parts == 1:
            return (min(names),)
        if len(names) == parts:
            return tuple(sorted(names))
    return None
