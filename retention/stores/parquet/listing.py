"""Finding Parquet files in `messages/`: every directory is listed once, and again only when it has changed."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from retention.storage.crash_points import Step
from retention.storage.errors import as_storage_errors
from retention.storage.sidecar import ArrowCodec, Sidecar
from retention.stores.layout import Layout

WORTH_FILES = 1_000
"""Of fewer files nothing is remembered: listing them takes milliseconds."""
COARSE_NS = 2 * 10**9
"""A directory that was listed so soon after it changed may change again without showing it."""
_TIMED_NS = 2 * 10**9
"""A directory that a file was put into shows it within this time, where a file system times directories."""
_EDITION = 3
_COLUMNS = pa.schema(
    [
        ("directory", pa.string()),
        ("inode", pa.int64()),
        ("mtime", pa.int64()),
        ("ctime", pa.int64()),
    ]
)

Stamp = tuple[int, int, int]
"""Inode, times of modification and of change in nanoseconds: every entry that comes or goes alters it, and no program
can set the last one."""
_LIST_AGAIN: Stamp = (0, 0, 0)


@dataclass(frozen=True)
class Basis:
    """The log that told which files are known."""

    table_id: str
    version: int
    seal: str
    """What that version's entry is known by."""


@dataclass(frozen=True)
class ListingRecord:
    """Directories as they were when every file in them was known."""

    basis: Basis
    stamps: Mapping[str, Stamp]
    """Each directory, relative to `messages/`, ending in `/` unless it is that itself."""
    digest: str


@dataclass(frozen=True)
class ListingResult:
    """What lies in the directories that had to be listed."""

    listed: Mapping[str, list[str]]
    """Directory → its Parquet files, relative to `messages/`."""
    stamps: Mapping[str, Stamp]
    """Of every directory, from before it was listed."""
    began: int
    """When, on a clock that never jumps."""

    def paths(self) -> list[str]:
        """All files that were found."""
        return [path for paths in self.listed.values() for path in paths]


def walk(directory: str, seen: ListingRecord | None = None, since: int = 0) -> ListingResult:
    """List Parquet files below a directory; hidden names and those that begin with _ are left out.

    Args:
        directory: `messages/` of a stream.
        seen: directories that look as they did then are not listed.
        since: leave out directories of segments below this base.

    Raises:
        StorageError: a directory cannot be read.
    """
    with as_storage_errors(directory):
        return _walk(directory, seen, since)


def _walk(directory: str, seen: ListingRecord | None, since: int) -> ListingResult:
    before = {} if seen is None else seen.stamps
    inner = _inner(before)
    listed: dict[str, list[str]] = {}
    stamps: dict[str, Stamp] = {}
    pending, began = [""], time.monotonic_ns()
    while pending:
        inside = pending.pop()
        with suppress(FileNotFoundError):
            stamp = _stamp(f"{directory}/{inside}")
            if before.get(inside) == stamp:
                pending += inner[inside]
            else:
                listed[inside], found = _list(directory, inside, since)
                pending += found
            stamps[inside] = stamp
    return ListingResult(listed, stamps, began)


def is_unchanged(directory: str, seen: ListingRecord) -> bool:
    """Whether no file can have come or gone since: no directory is to be listed again.

    Raises:
        StorageError: a directory cannot be read.
    """
    with suppress(FileNotFoundError), as_storage_errors(directory, FileNotFoundError):
        return all(
            _stamp(f"{directory}/{inside}") == stamp for inside, stamp in seen.stamps.items()
        )
    return False


class Directories:
    """Remembers in `_retention/directories.arrow` what was seen; losing it costs time."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sidecar = Sidecar(
            layout.own("directories.arrow"),
            ArrowCodec(_to_table, _from_table),
            Step.DIRECTORIES_KEPT,
            _EDITION,
        )

    def recall(self) -> ListingRecord | None:
        """What was seen last, of whatever log; None if nothing, or if in doubt."""
        record = self._sidecar.latest()
        return None if record is None else ListingRecord(*record.value, record.checksum)

    def keep(
        self,
        basis: Basis,
        walked: ListingResult,
        unknown: Iterable[str],
        seen: ListingRecord | None,
    ) -> None:
        """Remember a walk, but for directories of `unknown` files, and those that changed a moment before it."""
        latest = self._latest(walked)
        again = {path[: path.rfind("/") + 1] for path in unknown}
        stamps = {
            inside: stamp if inside not in again and max(stamp[1:]) < latest else _LIST_AGAIN
            for inside, stamp in walked.stamps.items()
        }
        if seen is not None and seen.stamps == stamps and seen.basis.table_id == basis.table_id:
            return
        if any(stamp != _LIST_AGAIN for stamp in stamps.values()):
            self._sidecar.save((basis, stamps), vars(basis))

    def _latest(self, walked: ListingResult) -> int:
        """Up to when a directory's last change must lie back, by the clock of the file system itself.

        0 if this file system does not say of directories when they changed.
        """
        own = self._layout.own()
        with tempfile.NamedTemporaryFile(dir=own, prefix=".", suffix=".tmp") as probe:
            now = os.stat(probe.name).st_mtime_ns  # noqa: PTH116
            if max(_stamp(own)[1:]) < now - _TIMED_NS:
                return 0
        return now - (time.monotonic_ns() - walked.began) - COARSE_NS


def _stamp(directory: str) -> Stamp:
    found = os.stat(directory)  # noqa: PTH116  (100,000 of them: a path object each costs as much)
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _list(directory: str, inside: str, since: int) -> tuple[list[str], list[str]]:
    """Parquet files directly in a directory, and the directories in it."""
    found, deeper = [], []
    with os.scandir(f"{directory}/{inside}") as entries:
        for entry in entries:
            name = entry.name
            base = name.removeprefix("segment=")
            if name[0] in "._" or (base.isdigit() and int(base) < since):
                continue
            if entry.is_dir(follow_symlinks=False):
                deeper.append(f"{inside}{name}/")
            elif name.endswith(".parquet"):
                found.append(inside + name)
    return found, deeper


def _inner(directories: Iterable[str]) -> Mapping[str, list[str]]:
    """The directories in each directory."""
    inner: defaultdict[str, list[str]] = defaultdict(list)
    for inside in directories:
        if inside:
            inner[inside[: inside.rfind("/", 0, -1) + 1]].append(inside)
    return inner


def _to_table(seen: tuple[Basis, Mapping[str, Stamp]]) -> pa.Table:
    _, stamps = seen
    numbers = (pa.array(column, pa.int64()) for column in zip(*stamps.values(), strict=True))
    return pa.table([pa.array(stamps, pa.string()), *numbers], schema=_COLUMNS)


def _from_table(state: Mapping[str, Any], table: pa.Table) -> tuple[Basis, Mapping[str, Stamp]]:
    directories, *numbers = (column.to_pylist() for column in table.columns)
    return Basis(**state), dict(zip(directories, zip(*numbers, strict=True), strict=True))
