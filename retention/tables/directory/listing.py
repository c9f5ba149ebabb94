"""The data files of a directory of Parquet files, with what tells whether they are still the same."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from retention.core.units import MINUTE
from retention.delta.log_files import has_log
from retention.errors import RefusedError, UsageError
from retention.storage.errors import as_storage_errors

SUFFIX = ".parquet"
_UNFINISHED = ("+tmp", "_temporary")
"""Directories in which sinks write files that are not complete."""
_TEMPORARY = "_tmp.parquet"
_FOREIGN = (
    (
        "_spark_metadata",
        "a Spark streaming sink lists its files there, and its readers go by that list",
    ),
    ("_metadata", "readers go by this summary of all files"),
    (".hoodie", "it is a Hudi table"),
    ("_retention/format.json", "it is a stream of this program"),
)
"""Marks of directories whose readers go by a list of files, and why."""
LINKED, RECENT, UNNAMABLE = "symbolic_links", "recently_modified", "names_not_utf8"
"""Reasons for which a file is passed over."""


class Pin(NamedTuple):
    """The identity of a file; one that was rewritten, or is another by now, has another."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class ListedFile:
    """A data file."""

    path: str
    """Relative to the table, with `/`."""
    pin: Pin


@dataclass
class Listing:
    """The data files of a directory, in order of paths."""

    identity: str
    """The identity of the directory itself."""
    files: list[ListedFile] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    """Reason → the number of files that stay unread."""


def pin_of(place: str) -> Pin | None:
    """The identity of a file; None if there is none, or only a link or a directory."""
    with as_storage_errors(place, FileNotFoundError, NotADirectoryError):
        try:
            status = Path(place).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
    return _pin(status) if stat.S_ISREG(status.st_mode) else None


def list_directory(location: str, now_ns: int) -> Listing:
    """List the data files of a table.

    Names that begin with `_` or `.` are not data, unless they are a partition's; neither are the unfinished files of
    Kafka Connect. Files that were modified in the last minute may be growing.

    Args:
        location: the directory.
        now_ns: the wall clock, nanoseconds since the epoch.

    Raises:
        UsageError: there is no directory.
        RefusedError: the directory, one above it or one in it has a log or a list of its files; or a part of it lies
            on another file system.
        StorageError: a directory cannot be read.
    """
    refuse_logs_above(location)
    listing = Listing(identity_of(location))
    with as_storage_errors(location):
        device = Path(location).stat().st_dev
    for directory, names in _walk(location, listing):
        for name in names:
            _add(listing, location, f"{directory}/{name}", device, now_ns)
    listing.files.sort(key=lambda file: file.path)
    return listing


def identity_of(location: str) -> str:
    """The identity of a directory; another one in its place, and a copy of it, have others.

    Raises:
        UsageError: there is none.
        StorageError: the storage failed.
    """
    with as_storage_errors(location):
        if not Path(location).is_dir():
            raise UsageError(
                f"{location}: there is no directory of Parquet files; correct the location, or let its writer create it"
            )
        return f"directory {Path(location).stat().st_ino}"


def refuse_logs_above(location: str) -> None:
    """Refuse a part of another table: its log, or its list of files, is in a directory above.

    Raises:
        RefusedError: names the directory.
    """
    for directory in (Path(location), *Path(location).parents):
        _refuse_log(str(directory))


def _walk(location: str, listing: Listing) -> Iterator[tuple[str, list[str]]]:
    """Every directory with data, and the names of files in it."""
    with as_storage_errors(location):
        for directory, inside, names in os.walk(location, onerror=_raise_unless_gone):
            _refuse_log(directory)
            kept = [name for name in inside if _is_data(name)]
            linked = [name for name in kept if Path(directory, name).is_symlink()]
            listing.passed_over[LINKED] += len(linked)
            inside[:] = sorted({*kept} - {*linked})
            yield directory, [name for name in names if _is_data(name) and name.endswith(SUFFIX)]


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_data(name: str) -> bool:
    """Whether a name is that of data; a partition of a column with an underscore is, as for Spark."""
    is_hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not is_hidden and name not in _UNFINISHED and not name.endswith(_TEMPORARY)


def _add(listing: Listing, location: str, place: str, device: int, now_ns: int) -> None:
    try:
        status = Path(place).lstat()
    except FileNotFoundError:
        return
    path = place.removeprefix(location).lstrip("/")
    if stat.S_ISLNK(status.st_mode):
        listing.passed_over[LINKED] += 1
    elif not stat.S_ISREG(status.st_mode):
        return
    elif not _is_text(path):
        listing.passed_over[UNNAMABLE] += 1
    elif status.st_dev != device:
        raise RefusedError(
            f"{place}: lies on another file system than {location}, so that it cannot be moved aside in one step; "
            "nothing was changed; list that directory as a table of its own"
        )
    elif abs(now_ns - status.st_mtime_ns) < MINUTE:
        listing.passed_over[RECENT] += 1
    else:
        listing.files.append(ListedFile(path, _pin(status)))


def _pin(status: os.stat_result) -> Pin:
    return Pin(status.st_size, status.st_mtime_ns, status.st_ino)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_log(directory: str) -> None:
    """Refuse a directory whose readers go by a list of its files."""
    if has_log(directory):
        raise RefusedError(
            f"{directory}: it is a Delta table, whose log lists its files; nothing was changed; list that directory "
            "with `format: delta`"
        )
    for mark, why in _FOREIGN:
        if os.path.lexists(f"{directory}/{mark}"):
            raise RefusedError(
                f"{directory}/{mark}: {why}, so that they fail when a file is moved away; nothing was changed; remove "
                "rows with the program that writes it"
            )
    if _has_iceberg(f"{directory}/metadata"):
        raise RefusedError(
            f"{directory}/metadata: it is an Iceberg table, whose metadata lists its files; nothing was changed; "
            "remove rows with a program that writes Iceberg"
        )


def _has_iceberg(metadata: str) -> bool:
    with as_storage_errors(metadata, FileNotFoundError, NotADirectoryError):
        try:
            return any(name.endswith(".metadata.json") for name in os.listdir(metadata))  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return False
