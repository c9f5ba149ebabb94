"""Tables and blocks passed between tasks: Arrow files that nothing needs after their process ends."""

from __future__ import annotations

import tempfile
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from retention.storage import files
from retention.storage.errors import as_storage_errors

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


class Sink(Protocol):
    """An open file for writing."""

    def write(self, content: Any) -> int:
        """Append bytes."""
        ...

    def tell(self) -> int:
        """The number of bytes written so far."""
        ...


def new_place(directory: str, name: str) -> str:
    """A location in a directory that no other attempt at a task uses."""
    return files.join(directory, f"{name}-{uuid.uuid4().hex}.arrow")


class ScratchDirectory:
    """A directory that is deleted with its object, or at the latest when the process ends."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._finalizer = weakref.finalize(self, _clear, location)

    def close(self) -> None:
        """Delete the directory now."""
        self._finalizer()


def local_directory() -> ScratchDirectory:
    """A new directory for this process alone.

    Raises:
        OSError: it cannot be created.
    """
    return ScratchDirectory(tempfile.mkdtemp(prefix="retention-"))


def write_table(location: str, table: pa.Table) -> None:
    """Write a table, compressed.

    Raises:
        StorageError: the storage failed.
    """
    with create(location) as sink, pa.ipc.new_file(sink, table.schema, options=_LZ4) as out:
        out.write_table(table)


def write_tables(location: str, tables: Sequence[pa.Table]) -> None:
    """Write tables of one schema, compressed; each can be read alone.

    Raises:
        StorageError: the storage failed.
    """
    with create(location) as sink, pa.ipc.new_file(sink, tables[0].schema, options=_LZ4) as out:
        for table in tables:
            columns = [column.combine_chunks() for column in table.columns]
            out.write_batch(pa.RecordBatch.from_arrays(columns, schema=table.schema))


def read_table_at(location: str, at: int) -> pa.Table:
    """Read one of the tables of a file of `write_tables` back.

    Raises:
        FileNotFoundError: it was deleted.
        StorageError: the storage failed.
    """
    with files.reading(location) as source:
        return pa.Table.from_batches([pa.ipc.open_file(source).get_batch(at)])


def read_table(location: str) -> pa.Table:
    """Read a table back.

    Raises:
        FileNotFoundError: it was deleted.
        StorageError: the storage failed.
    """
    with files.reading(location) as source:
        return pa.ipc.open_file(source).read_all()


@contextmanager
def create(location: str) -> Iterator[Sink]:
    """Write a file at a location unknown to others; delete it if the block fails, and do not fsync it.

    Raises:
        StorageError: the storage failed.
    """
    if files.is_remote(location):
        with files.create_unshared(location) as sink:
            yield sink
        return
    with as_storage_errors(location), ExitStack() as failed:
        failed.callback(Path(location).unlink, missing_ok=True)
        with pa.OSFile(location, "wb") as sink:
            yield sink
        failed.pop_all()


def read_range(location: str, offset: int, length: int) -> pa.Buffer:
    """A range of bytes of a file; bytes on disk are not copied.

    Raises:
        FileNotFoundError: it was deleted.
        StorageError: the storage failed.
    """
    with as_storage_errors(location, FileNotFoundError), files.open_mapped(location) as source:
        source.seek(offset)
        return source.read_buffer(length)


def options(location: str) -> pa.ipc.IpcWriteOptions:
    """Options of a file's Arrow streams: compression pays off on a network, not in a disk's cache."""
    return _LZ4 if files.is_remote(location) else pa.ipc.IpcWriteOptions()


def _clear(location: str) -> None:
    files.delete(files.join(location, path) for path in files.walk(location))
    if not files.is_remote(location):
        with suppress(OSError):
            Path(location).rmdir()
