"""File operations by location, on local disks and object stores, durable when they return."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from retention.errors import UsageError
from retention.object_store import file_system
from retention.object_store import storage_options as _storage_options
from retention.steps import Step, reached

storage_options = _storage_options

_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_remote(location: str) -> bool:
    """Whether a location lies on an object store.

    Raises:
        UsageError: its scheme is none that the engine can use.
    """
    scheme, separator, _ = location.partition("://")
    if not separator:
        return False
    if scheme not in ("s3", "s3a"):
        raise UsageError(
            f"{location}: {scheme}:// is not supported; use a local path or an s3:// location"
        )
    return True


def join(base: str, *parts: str) -> str:
    """A location below `base`; every part is relative and uses `/`."""
    return "/".join([base.rstrip("/"), *parts])


def stat(location: str) -> tuple[int, int]:
    """Length in bytes and modification time in milliseconds since the epoch.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not is_remote(location):
        found = Path(location).stat()
        return found.st_size, found.st_mtime_ns // 1_000_000
    info = file_system().get_file_info(_key(location))
    if info.type != fs.FileType.File:
        raise FileNotFoundError(location)
    return info.size, info.mtime_ns // 1_000_000


def length(location: str) -> int | None:
    """Length in bytes, None if there is no such file."""
    try:
        return stat(location)[0]
    except (FileNotFoundError, NotADirectoryError):
        return None


def open_input(location: str) -> pa.NativeFile:
    """Open a file for random reads."""
    if is_remote(location):
        return file_system().open_input_file(_key(location))
    return pa.OSFile(location, "rb")


def read_bytes(location: str) -> bytes | None:
    """The whole content, None if there is no such file."""
    try:
        with open_input(location) as source:
            return bytes(source.read())
    except FileNotFoundError:
        return None


@contextmanager
def create(location: str) -> Iterator[Any]:
    """Write a file that appears whole, or not at all if the block raises; durable after the block.

    Two attempts of one task may write the same location: the last one stays.
    """
    if is_remote(location):
        with _upload(location) as sink:
            yield sink
        return
    final = Path(location)
    make_directory(str(final.parent))
    temporary = _beside(final)
    try:
        with temporary.open("xb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        reached(Step.WRITE_SYNCED)
        temporary.replace(final)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            error.filename = location  # a failed write does not say by itself where it was
        raise
    sync_directory(str(final.parent))


def replace(location: str, content: bytes) -> None:
    """Put `content` at a location, over whatever is there."""
    with create(location) as sink:
        sink.write(content)


@contextmanager
def if_writable() -> Iterator[None]:
    """Around writes that only save later work: where nothing may be written, go on without them."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise


def create_if_absent(location: str, content: bytes) -> bool:
    """Put `content` at a local path unless something is there; False if so.

    A hard link of a synced temporary file: it appears whole, and of several rivals one succeeds.
    """
    final = Path(location)
    make_directory(str(final.parent))
    temporary = _beside(final)
    try:
        with temporary.open("xb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        reached(Step.ENTRY_SYNCED)
        os.link(temporary, final)
        reached(Step.ENTRY_LINKED)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(str(final.parent))
    return True


def make_directory(directory: str) -> None:
    """Make a directory and its parents, each durable in the one above; object stores have none."""
    if is_remote(directory):
        return
    path = Path(directory)
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_directory(str(new.parent))


def sync_directory(directory: str) -> None:
    """Make creations, renames and deletions in a local directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(pairs: Iterable[tuple[str, str]]) -> None:
    """Rename local files, (from, to); a source that is gone was moved before."""
    touched = set()
    for source, target in pairs:
        parent = str(Path(target).parent)
        make_directory(parent)
        with suppress(FileNotFoundError):
            Path(source).rename(target)
            reached(Step.FILE_MOVED)
            touched |= {parent, str(Path(source).parent)}
    for directory in sorted(touched):
        sync_directory(directory)


def delete(locations: Iterable[str]) -> None:
    """Delete files; those that are gone already are fine."""
    for location in locations:
        with suppress(FileNotFoundError):
            if is_remote(location):
                file_system().delete_file(_key(location))
            else:
                Path(location).unlink()


def names(directory: str) -> list[str]:
    """The names of the files directly in a directory, sorted; none if it does not exist.

    Names that begin with a dot are writes in progress and left out.
    """
    if not is_remote(directory):
        try:
            with os.scandir(directory) as entries:
                files = [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        return sorted(name for name in files if not name.startswith("."))
    selector = fs.FileSelector(_key(directory), allow_not_found=True)
    found = file_system().get_file_info(selector)
    return sorted(info.base_name for info in found if info.type == fs.FileType.File)


def directories(directory: str) -> list[str]:
    """The names of the directories directly in a directory, sorted; none if it does not exist."""
    if not is_remote(directory):
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []
    selector = fs.FileSelector(_key(directory), allow_not_found=True)
    found = file_system().get_file_info(selector)
    return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)


def walk(directory: str) -> list[str]:
    """Every file below a directory, writes in progress too: paths relative to it, sorted."""
    if not is_remote(directory):
        found = (
            Path(inside, name).relative_to(directory).as_posix()
            for inside, _, names_inside in os.walk(directory)
            for name in names_inside
        )
        return sorted(found)
    head = _key(directory) + "/"
    selector = fs.FileSelector(_key(directory), allow_not_found=True, recursive=True)
    infos = file_system().get_file_info(selector)
    return sorted(info.path.removeprefix(head) for info in infos if info.type == fs.FileType.File)


def lengths(locations: Sequence[str]) -> list[int | None]:
    """Lengths of many files, in order; None where there is none."""
    if not locations or not is_remote(locations[0]):
        return [length(location) for location in locations]
    found = file_system().get_file_info([_key(location) for location in locations])
    return [info.size if info.type == fs.FileType.File else None for info in found]


@contextmanager
def _upload(location: str) -> Iterator[Any]:
    sink = file_system().open_output_stream(_key(location))
    try:
        yield sink
    except BaseException:
        # Closing completes the upload; what a failed block left must not stay as if it were whole.
        with suppress(OSError):
            sink.close()
        with suppress(OSError):
            file_system().delete_file(_key(location))
        raise
    sink.close()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def _key(location: str) -> str:
    return location.partition("://")[2].rstrip("/")
