"""Tables on their way between tasks: Arrow files on which nothing rests once a process is gone."""

from __future__ import annotations

import pyarrow as pa

from retention.storage import files


def write_table(location: str, table: pa.Table) -> None:
    """Write a table, compressed.

    Raises:
        StorageError: the storage failed.
    """
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        files.create(location) as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as out,
    ):
        out.write_table(table)


def read_table(location: str) -> pa.Table:
    """Read a table back.

    Raises:
        FileNotFoundError: it is gone.
        StorageError: the storage failed.
    """
    with files.open_input(location) as source:
        return pa.ipc.open_file(source).read_all()
