"""Local files and directories, written completely or not at all, and durable when a call returns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors
from retention.storage.fsync import sync_directories, sync_directory

_TEMPORARY = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{32}\.tmp")


@contextmanager
def write(location: str) -> Iterator[BinaryIO]:
    """Write a file that appears complete, or not at all if the block raises; durable after the block."""
    with put(location) as sink:
        yield sink
    sync_directory(_parent(location))


@contextmanager
def put(location: str) -> Iterator[BinaryIO]:
    """Write a file like `write`, but its name is durable only after an fsync of its directory."""
    with put_unsynced(location) as sink:
        yield sink
        sink.flush()
        os.fsync(sink.fileno())
        reached(Step.WRITE_SYNCED)


@contextmanager
def put_unsynced(location: str) -> Iterator[BinaryIO]:
    """Write a file that appears complete, or not at all if the block raises; a power failure may tear or lose it."""
    temporary = _beside(location)
    try:
        with _new(temporary) as sink:
            yield sink
        os.replace(temporary, location)  # noqa: PTH105  (path objects are a third of the time of a small file)
    except BaseException:
        _forget(temporary)
        raise


def create_if_absent(location: str, content: bytes | Iterable[bytes]) -> bool:
    """Write `content`, whole or in pieces, to a local path unless a file exists there; False if one does.

    The file is a hard link to an fsynced temporary file: it appears complete, and exactly one of several rivals
    succeeds.
    """
    temporary = _beside(location)
    with as_storage_errors(location):
        try:
            with _new(temporary) as sink:
                sink.writelines([content] if isinstance(content, bytes) else content)
                sink.flush()
                os.fsync(sink.fileno())
            reached(Step.ENTRY_SYNCED)
            if not _link(temporary, location):
                return False
            reached(Step.ENTRY_LINKED)
        finally:
            _forget(temporary)
    sync_directory(_parent(location))
    return True


def overwrite(location: str, length: int) -> None:
    """Replace the content of an existing file in place by `length` zeros, fsynced."""
    zeros = bytes(1 << 20)
    with as_storage_errors(location), Path(location).open("r+b") as sink:
        for begin in range(0, length, len(zeros)):
            sink.write(zeros[: length - begin])
        sink.flush()
        os.fsync(sink.fileno())


def link(location: str, name: str) -> None:
    """Give a local file a second, unused name; the name is not fsynced.

    Raises:
        StorageError: the file system has no hard links, or refuses this one.
    """
    make_directory(name.rpartition("/")[0])
    with as_storage_errors(name):
        os.link(location, name)


def target_of(name: str) -> str | None:
    """The final name of a temporary file that a killed writer may have left; None: the name is no such file's."""
    named = _TEMPORARY.fullmatch(name)
    return None if named is None else named["target"]


def make_directory(directory: str) -> None:
    """Create a directory and its parents, each durable in its parent."""
    make_directories([directory])


def make_directories(directories: Iterable[str]) -> None:
    """Create directories and their parents, all durable in their parents when this returns."""
    grown: set[str] = set()
    for directory in directories:
        if os.path.isdir(directory):  # noqa: PTH112  (a quarter of the time)
            continue
        path = Path(directory)
        missing = []
        with as_storage_errors(directory):
            while not path.is_dir():
                missing.append(path)
                path = path.parent
            for new in reversed(missing):
                new.mkdir(exist_ok=True)
                grown.add(str(new.parent))
    sync_directories(grown)


def move(pairs: Iterable[tuple[str, str]]) -> None:
    """Rename local files, as pairs (from, to); a missing source was already moved."""
    wanted = [(source, target, target.rpartition("/")[0]) for source, target in pairs]
    make_directories({parent for _, _, parent in wanted})
    touched: set[str] = set()
    for source, target, parent in wanted:
        with suppress(FileNotFoundError), as_storage_errors(source, FileNotFoundError):
            _rename(source, target)
            reached(Step.FILE_MOVED)
            touched |= {parent, source.rpartition("/")[0]}
    sync_directories(touched)


def _new(place: str) -> BinaryIO:
    """Open a new file; create its directory, once more if another process removed it while it was empty."""
    for _ in range(2):
        with suppress(FileNotFoundError):
            return open(place, "xb")  # noqa: PTH123  (as in `put_unsynced`)
        make_directory(_parent(place))
    return open(place, "xb")  # noqa: PTH123


def _rename(source: str, target: str) -> None:
    """Rename a file; as for a new file, a missing directory is recreated once."""
    try:
        os.rename(source, target)  # noqa: PTH104  (100,000 of them)
    except FileNotFoundError:
        if not os.path.lexists(source):
            raise
        make_directory(target.rpartition("/")[0])
        os.rename(source, target)  # noqa: PTH104


def _link(temporary: str, final: str) -> bool:
    """Give a file a second name; False if another file already has it."""
    try:
        os.link(temporary, final)
    except OSError as error:
        # A request that was sent twice fails as if a rival were first; the name is ours if both are the same file.
        if Path(final).exists() and Path(final).samefile(temporary):
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _forget(temporary: str) -> None:
    """Delete a temporary file; on failure, it is listed among the orphan files."""
    with suppress(OSError):
        os.unlink(temporary)  # noqa: PTH108  (as in `put_unsynced`)


def _beside(location: str) -> str:
    directory, slash, name = location.rpartition("/")
    return f"{directory}{slash}.{name}.{os.urandom(16).hex()}.tmp"


def _parent(location: str) -> str:
    """The directory of a file; a relative location may have none."""
    return os.path.dirname(location) or "."  # noqa: PTH120  (as in `put_unsynced`)
