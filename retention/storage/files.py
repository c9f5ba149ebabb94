"""File operations by location, on local disks and object stores, durable when they return."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

from retention.errors import UsageError
from retention.errors.printable import NO_CREDENTIALS, has_credentials
from retention.storage import fsync, local
from retention.storage.errors import as_storage_errors
from retention.storage.places import ON_S3, refused_scheme
from retention.storage.s3 import file_system, has_bucket
from retention.storage.s3 import storage_options as _storage_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

storage_options = _storage_options
create_if_absent = local.create_if_absent
link = local.link
move = local.move
sync_directory = fsync.sync_directory

_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_HELD_BYTES = 8 << 20
"""The maximum bytes to buffer in memory before an upload; more are buffered in a temporary file."""
_REQUESTS_AT_ONCE = 8
"""The requests of a process that wait for an object store's answers together."""
_MISSING = (FileNotFoundError, NotADirectoryError)


def is_remote(location: str) -> bool:
    """Whether a location is on an object store.

    Raises:
        UsageError: the engine cannot use its scheme, or it contains credentials.
    """
    if ":/" not in location:
        return False
    if location.startswith(ON_S3):
        if has_credentials(location):
            raise UsageError(f"{location}: {NO_CREDENTIALS}")
        return True
    why = refused_scheme(location)
    if why is not None:
        raise UsageError(f"{location!r} {why}")
    return False


def read_parallelism(location: str) -> int:
    """The best number of files to read in parallel at this location.

    Threads pay off for the latency of an object store. A disk answers at once, and threads only contend for the
    interpreter's lock.
    """
    return _REQUESTS_AT_ONCE if is_remote(location) else 2


def streams_at_once(location: str) -> int:
    """The best number of streams or tables to plan or describe at once at this location.

    On a disk each reads its files in threads of its own, and a second stream beside it contends for the interpreter's
    lock: plans of many small streams take a third more processor time.
    """
    return _REQUESTS_AT_ONCE if is_remote(location) else 1


def join(base: str, *parts: str) -> str:
    """A location below `base`; every part is relative and uses `/`."""
    return "/".join([base.rstrip("/"), *parts])


def stat(location: str) -> tuple[int, int]:
    """Length in bytes and modification time in milliseconds since the epoch.

    Raises:
        FileNotFoundError: there is no such file.
        StorageError: the storage failed; so do all functions here.
    """
    with as_storage_errors(location, *_MISSING):
        if not is_remote(location):
            status = os.stat(location)  # noqa: PTH116
            return status.st_size, status.st_mtime_ns // 1_000_000
        info = file_system().get_file_info(_key(location))
    if not info.is_file:
        raise FileNotFoundError(location)
    return info.size, info.mtime_ns // 1_000_000


def length(location: str) -> int | None:
    """Length in bytes; None if there is no such file."""
    try:
        return stat(location)[0]
    except _MISSING:
        return None


def open_input(location: str) -> pa.NativeFile:
    """Open a file for random reads."""
    import pyarrow as pa

    with as_storage_errors(location, FileNotFoundError):
        if is_remote(location):
            return file_system().open_input_file(_key(location))
        return pa.OSFile(location, "rb")


@contextmanager
def reading(location: str) -> Iterator[pa.NativeFile]:
    """Open a file for random reads during the block, with storage failures as `StorageError`."""
    with as_storage_errors(location, FileNotFoundError), open_input(location) as source:
        yield source


@contextmanager
def reading_bytes(location: str) -> Iterator[Any]:
    """Open a file during the block to read bytes, which need no Arrow on a disk, with failures as `StorageError`."""
    with as_storage_errors(location, FileNotFoundError), _opened(location) as source:
        yield source


def open_mapped(location: str) -> pa.NativeFile:
    """Open a file memory-mapped, if its storage supports that."""
    import pyarrow as pa

    if is_remote(location):
        return open_input(location)
    with as_storage_errors(location, FileNotFoundError):
        return pa.memory_map(location)


def chunks(location: str, size: int) -> Iterator[bytes]:
    """The content of a file, at most `size` bytes at a time."""
    with reading_bytes(location) as source:
        while piece := source.read(size):
            yield piece


def read_bytes(location: str) -> bytes | None:
    """The whole content of a file, None if there is no such file; never a mixture with a concurrent replacement."""
    if not is_remote(location):
        return read_unchanging(location)
    from retention.storage.objects import read_object

    try:
        with as_storage_errors(location, FileNotFoundError):
            return read_object(location)
    except FileNotFoundError:
        return None


def read_unchanging(location: str) -> bytes | None:
    """The whole content of an immutable file, None if there is no such file; saves one request."""
    try:
        with as_storage_errors(location, FileNotFoundError), _opened(location, 0) as source:
            return bytes(source.read())
    except FileNotFoundError:
        return None


def _opened(location: str, buffering: int = -1) -> Any:
    """An open file; 0 as `buffering` spares a buffer that a read of all bytes would not use."""
    if is_remote(location):
        return open_input(location)
    return open(location, "rb", buffering)  # noqa: PTH123  (a path object costs as much as the read)


@contextmanager
def create(location: str) -> Iterator[Any]:
    """Write a file that appears complete, or not at all if the block raises; durable after the block.

    An existing file remains until then. Two attempts of one task may write the same location; the last one wins.
    """
    with (
        as_storage_errors(location),
        _held(location) if is_remote(location) else local.write(location) as sink,
    ):
        yield sink


@contextmanager
def create_unsynced(location: str) -> Iterator[Any]:
    """Write a file like `create`, but for readers that detect a torn one: a power failure may tear or lose it."""
    with (
        as_storage_errors(location),
        _held(location) if is_remote(location) else local.put_unsynced(location) as sink,
    ):
        yield sink


@contextmanager
def create_unshared(location: str) -> Iterator[Any]:
    """Write a file like `create`, at a location unknown to others; an object store gets its bytes during the block."""
    with (
        as_storage_errors(location),
        _upload(location) if is_remote(location) else _written(location) as sink,
    ):
        yield sink


def replace(location: str, content: bytes) -> None:
    """Write `content` to a location, replacing any file there."""
    with create(location) as sink:
        sink.write(content)


def replace_all(directory: str, contents: Mapping[str, Iterable[bytes]]) -> None:
    """Write contents, in pieces, to names directly in a directory, replacing files; durable when this returns.

    Each is synced after all are written, so that none appears if one of them fails to be.
    """
    put = _held if is_remote(directory) else local.put
    with ExitStack() as written:
        for name, pieces in contents.items():
            location = join(directory, name)
            written.enter_context(as_storage_errors(location))
            sink = written.enter_context(put(location))
            for piece in pieces:
                sink.write(piece)
    if not is_remote(directory):
        sync_directory(directory)


@contextmanager
def if_writable() -> Iterator[None]:
    """Skip the rest of the block on read-only storage; its writes only save later work."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise


def make_directory(directory: str) -> None:
    """Create a directory and its parents, each durable in its parent; object stores have none."""
    if not is_remote(directory):
        local.make_directory(directory)


def delete(locations: Iterable[str]) -> None:
    """Delete files; missing ones are ignored."""
    for location in locations:
        with suppress(FileNotFoundError), as_storage_errors(location, FileNotFoundError):
            if is_remote(location):
                file_system().delete_file(_key(location))
            else:
                Path(location).unlink()


def remove_directory(directory: str) -> bool:
    """Remove a local directory if it is empty; returns whether it no longer exists. Object stores have none."""
    try:
        Path(directory).rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def delete_directory(directory: str) -> None:
    """Delete all objects below a prefix of an object store."""
    with suppress(FileNotFoundError), as_storage_errors(directory, FileNotFoundError):
        file_system().delete_dir(_key(directory))


def names(directory: str) -> list[str]:
    """The names of the files directly in a directory, sorted; none if it does not exist.

    Names that begin with a dot are writes in progress and omitted.
    """
    if is_remote(directory):
        infos = _objects(directory)
        return sorted(info.base_name for info in infos if info.is_file)
    files = [entry.name for entry in _entries(directory) if entry.is_file()]
    return sorted(name for name in files if not name.startswith("."))


def times(directory: str) -> dict[str, int]:
    """Name of each file directly in a directory → modification time in milliseconds; as `names`, but unordered."""
    if is_remote(directory):
        infos = _objects(directory)
        return {info.base_name: info.mtime_ns // 1_000_000 for info in infos if info.is_file}
    return {
        entry.name: entry.stat().st_mtime_ns // 1_000_000
        for entry in _entries(directory)
        if entry.is_file() and not entry.name.startswith(".")
    }


def directories(directory: str) -> list[str]:
    """The names of the directories directly in a directory, sorted; none if it does not exist."""
    if is_remote(directory):
        from pyarrow import fs

        infos = _objects(directory)
        return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)
    return sorted(entry.name for entry in _entries(directory) if entry.is_dir())


def walk(directory: str) -> list[str]:
    """Every file below a directory, writes in progress included: paths relative to it, sorted."""
    if not is_remote(directory):
        with as_storage_errors(directory):
            paths = (
                Path(inside, name).relative_to(directory).as_posix()
                for inside, _, names_inside in os.walk(directory, onerror=_refuse_to_guess)
                for name in names_inside
            )
            return sorted(paths)
    head = _key(directory) + "/"
    infos = _objects(directory, recursive=True)
    return sorted(info.path.removeprefix(head) for info in infos if info.is_file)


def is_special(location: str) -> bool:
    """Whether a location is a pipe, a socket or a device, which has no content, and which may block who opens it."""
    path = Path(location)
    return not is_remote(location) and path.exists() and not (path.is_file() or path.is_dir())


def lengths(locations: Sequence[str]) -> list[int | None]:
    """Lengths of many files, in order; None for a missing file."""
    if not locations or not is_remote(locations[0]):
        return [length(location) for location in locations]
    with as_storage_errors(locations[0]):
        infos = file_system().get_file_info([_key(location) for location in locations])
    return [info.size if info.is_file else None for info in infos]


@contextmanager
def _held(location: str) -> Iterator[Any]:
    """Buffer all writes, then upload: an abandoned upload would replace the existing object."""
    with SpooledTemporaryFile(_HELD_BYTES) as held:
        yield held
        held.seek(0)
        sink = file_system().open_output_stream(_key(location))
        while piece := held.read(_HELD_BYTES):
            sink.write(piece)
        sink.close()


@contextmanager
def _written(location: str) -> Iterator[Any]:
    """Write a local file through Arrow; a Python file would copy its buffers first."""
    import pyarrow as pa

    with local.write(location) as held, pa.OSFile(held.name, "wb") as sink:
        yield sink


@contextmanager
def _upload(location: str) -> Iterator[pa.NativeFile]:
    """Upload while writing, and delete the object if the block fails: dropping a stream completes its upload."""
    sink = file_system().open_output_stream(_key(location))
    try:
        yield sink
    except BaseException:
        with suppress(OSError):
            sink.close()
        with suppress(OSError):
            file_system().delete_file(_key(location))
        raise
    sink.close()


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with as_storage_errors(directory, FileNotFoundError), os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _objects(directory: str, *, recursive: bool = False) -> list[fs.FileInfo]:
    from pyarrow import fs

    selector = fs.FileSelector(_key(directory), allow_not_found=True, recursive=recursive)
    with as_storage_errors(directory):
        infos = list(file_system().get_file_info(selector))
        if not infos and not has_bucket(directory):
            raise FileNotFoundError(f"{directory}: NO_SUCH_BUCKET")
        return infos


def _refuse_to_guess(error: OSError) -> None:
    """Raise the errors that `os.walk` would ignore, except for a removed directory."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _key(location: str) -> str:
    return location.partition("://")[2].rstrip("/")
