"""One listing of all files below a location: length, time, and an object store's own digest of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from retention.storage import files
from retention.storage.errors import as_storage_errors
from retention.storage.s3 import file_system, object_store


@dataclass(frozen=True)
class ListedFile:
    """A file below a location."""

    path: str
    """Relative to the location, with `/` between its parts."""
    length: int
    """Bytes."""
    modified_ns: int
    """Nanoseconds since the epoch, with the precision of the storage."""
    etag: str = ""
    """An object store's digest; empty if it was not requested or the store has none."""
    inode: int = 0
    """The inode, unchanged by renames on a local disk; 0 elsewhere."""


def list_files(location: str) -> list[ListedFile]:
    """Every file below a directory or prefix, with any name, unordered; links to directories are followed.

    Raises:
        FileNotFoundError: there is no such directory, or nothing below the prefix.
        StorageError: the storage failed.
    """
    if files.is_remote(location):
        return _objects(location)
    with as_storage_errors(location):
        is_there = Path(location).is_dir()
    if not is_there:
        raise FileNotFoundError(location)
    with as_storage_errors(location):
        return list(_local(location, "", frozenset()))


def _local(directory: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[ListedFile]:
    """The files below a directory; a link to one of its ancestors is not followed."""
    status = os.stat(directory)  # noqa: PTH116  (10,000 of them in a second)
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _local(entry.path, f"{prefix}{entry.name}/", above | {here})
                continue
            try:
                known = entry.stat()
            except FileNotFoundError:
                continue  # Removed meanwhile, or a dangling link.
            yield ListedFile(
                f"{prefix}{entry.name}", known.st_size, known.st_mtime_ns, "", known.st_ino
            )


def _objects(location: str) -> list[ListedFile]:
    """The objects below a prefix, with their ETags if obstore can be used."""
    import obstore
    from obstore.exceptions import BaseError

    try:
        store, key = object_store(location)
        listed = [
            ListedFile(
                str(meta["path"]).removeprefix(f"{key}/"),
                int(meta["size"]),
                int(meta["last_modified"].timestamp() * 1_000) * 1_000_000,
                (meta["e_tag"] or "").strip('"'),
            )
            for page in obstore.list(store, key or None)
            for meta in page
        ]
    except BaseError:
        # Only Arrow finds some credentials, such as those of a single sign-on.
        listed = _by_arrow(location)
    if not listed:
        raise FileNotFoundError(location)
    return [file for file in listed if not file.path.endswith("/")]


def _by_arrow(location: str) -> list[ListedFile]:
    key = location.partition("://")[2].rstrip("/")
    selector = fs.FileSelector(key, allow_not_found=True, recursive=True)
    with as_storage_errors(location):
        infos = file_system().get_file_info(selector)
    return [
        ListedFile(info.path.removeprefix(f"{key}/"), info.size, info.mtime_ns)
        for info in infos
        if info.type == fs.FileType.File
    ]
