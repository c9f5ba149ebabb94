"""Listings of the Parquet files in `messages/`: each directory is listed once, and again only after it changes."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from retention.storage.crash_points import Step
from retention.storage.elapsed import elapsed_ns
from retention.storage.errors import as_storage_errors
from retention.storage.sidecar import Sidecar
from retention.storage.table_codecs import ArrowCodec
from retention.stores.layout import Layout

WORTH_FILES = 1_000
"""The minimum number of files for a stored listing; listing fewer takes milliseconds."""
COARSE_NS = 2 * 10**9
"""The time after a change of a directory, in nanoseconds, in which another change may leave its times unchanged."""
_TIMED_NS = 2 * 10**9
"""The time, in nanoseconds, within which a new file shows in its directory's times, if the file system has any."""
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
"""Inode, modification time and change time, in nanoseconds.

Each added or removed entry alters it, and no program can set the change time.
"""
_LIST_AGAIN: Stamp = (0, 0, 0)


@dataclass(frozen=True)
class ListingBasis:
    """The version of the log that determined the known files."""

    table_id: str
    version: int
    seal: str
    """The seal of that version's entry."""


@dataclass(frozen=True)
class ListingRecord:
    """The stamps of directories at a time when every file in them was known."""

    basis: ListingBasis
    stamps: Mapping[str, Stamp]
    """Directory → stamp; relative to `messages/`, ending in `/` unless it is `messages/` itself."""
    digest: str


@dataclass(frozen=True)
class ListingResult:
    """The Parquet files in the newly listed directories."""

    listed: Mapping[str, list[str]]
    """Directory → its Parquet files, relative to `messages/`."""
    stamps: Mapping[str, Stamp]
    """The stamp of every directory, taken before its listing."""
    began: int
    """The start of the walk, in nanoseconds on a monotonic clock."""

    def paths(self) -> list[str]:
        """All listed files."""
        return [path for paths in self.listed.values() for path in paths]


def walk(directory: str, record: ListingRecord | None = None, since: int = 0) -> ListingResult:
    """List Parquet files below a directory, without names that begin with `.` or `_`.

    Args:
        directory: `messages/` of a stream.
        record: an earlier listing; unchanged directories are not listed again.
        since: the lowest segment base to list.

    Raises:
        StorageError: a directory cannot be read.
    """
    with as_storage_errors(directory):
        return _walk(directory, record, since)


def _walk(directory: str, record: ListingRecord | None, since: int) -> ListingResult:
    before = {} if record is None else record.stamps
    inner = _inner(before)
    listed: dict[str, list[str]] = {}
    stamps: dict[str, Stamp] = {}
    pending, began = [""], elapsed_ns()
    while pending:
        inside = pending.pop()
        with suppress(FileNotFoundError):
            stamp = _stamp(f"{directory}/{inside}")
            if before.get(inside) == stamp:
                pending += inner[inside]
            else:
                listed[inside], deeper = _list(directory, inside, since)
                pending += deeper
            stamps[inside] = stamp
    return ListingResult(listed, stamps, began)


def is_unchanged(directory: str, record: ListingRecord) -> bool:
    """Whether no file can have been added or removed since a listing, so no directory needs a new listing.

    Raises:
        StorageError: a directory cannot be read.
    """
    with suppress(FileNotFoundError), as_storage_errors(directory, FileNotFoundError):
        return all(
            _stamp(f"{directory}/{inside}") == stamp for inside, stamp in record.stamps.items()
        )
    return False


class Directories:
    """Stores the last listing in `_retention/directories.arrow`; losing that file costs only time."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sidecar = Sidecar(
            layout.engine_path("directories.arrow"),
            ArrowCodec(_to_table, _from_table),
            Step.DIRECTORIES_KEPT,
            _EDITION,
        )

    def recall(self) -> ListingRecord | None:
        """The last stored record, of any log; None if there is none or it is doubtful."""
        record = self._sidecar.latest()
        return None if record is None else ListingRecord(*record.value, record.checksum)

    def keep(
        self,
        basis: ListingBasis,
        walked: ListingResult,
        unknown: Iterable[str],
        before: ListingRecord | None,
    ) -> None:
        """Store a walk, without directories that have `unknown` files or changed just before it."""
        latest = self._latest(walked)
        again = {path[: path.rfind("/") + 1] for path in unknown}
        stamps = {
            inside: stamp if inside not in again and max(stamp[1:]) < latest else _LIST_AGAIN
            for inside, stamp in walked.stamps.items()
        }
        if (
            before is not None
            and before.stamps == stamps
            and before.basis.table_id == basis.table_id
        ):
            return
        if any(stamp != _LIST_AGAIN for stamp in stamps.values()):
            self._sidecar.save((basis, stamps), vars(basis))

    def _latest(self, walked: ListingResult) -> int:
        """The upper bound for a directory's last change, by the clock of the file system itself.

        0 if this file system does not record the times of directories.
        """
        directory = self._layout.engine_path()
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".", suffix=".tmp") as probe:
            now = os.stat(probe.name).st_mtime_ns  # noqa: PTH116
            if max(_stamp(directory)[1:]) < now - _TIMED_NS:
                return 0
        return now - (elapsed_ns() - walked.began) - COARSE_NS


def _stamp(directory: str) -> Stamp:
    status = os.stat(directory)  # noqa: PTH116  (for 100,000 directories, path objects would double the cost)
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _list(directory: str, inside: str, since: int) -> tuple[list[str], list[str]]:
    """Parquet files directly in a directory, and the directories in it."""
    paths, deeper = [], []
    with os.scandir(f"{directory}/{inside}") as entries:
        for entry in entries:
            name = entry.name
            base = name.removeprefix("segment=")
            if name[0] in "._" or (base.isdigit() and int(base) < since):
                continue
            if entry.is_dir(follow_symlinks=False):
                deeper.append(f"{inside}{name}/")
            elif name.endswith(".parquet"):
                paths.append(inside + name)
    return paths, deeper


def _inner(directories: Iterable[str]) -> Mapping[str, list[str]]:
    """The directories in each directory."""
    inner: defaultdict[str, list[str]] = defaultdict(list)
    for inside in directories:
        if inside:
            inner[inside[: inside.rfind("/", 0, -1) + 1]].append(inside)
    return inner


def _to_table(value: tuple[ListingBasis, Mapping[str, Stamp]]) -> pa.Table:
    _, stamps = value
    numbers = (pa.array(column, pa.int64()) for column in zip(*stamps.values(), strict=True))
    return pa.table([pa.array(stamps, pa.string()), *numbers], schema=_COLUMNS)


def _from_table(
    state: Mapping[str, Any], table: pa.Table
) -> tuple[ListingBasis, Mapping[str, Stamp]]:
    directories, *numbers = (column.to_pylist() for column in table.columns)
    return ListingBasis(**state), dict(zip(directories, zip(*numbers, strict=True), strict=True))
