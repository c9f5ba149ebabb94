"""What the records of the files that a run took and added tell of it, where nothing else does any more."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from retention import files
from retention.opened import OpenedStream
from retention.ports import Snapshot

_DIGEST_BYTES = 32


def is_in_force(opened: OpenedStream, run: str, snapshot: Snapshot) -> bool | None:
    """Whether a table is as a run would have left it; None: its files do not tell.

    No name of a file is ever used again: where one is live that only the run's commit can have added, it committed;
    where one is that it would have removed, it did not, or was undone.

    Args:
        opened: the stream.
        run: its run.
        snapshot: the table now.
    """
    live = set(snapshot.files["path"].to_pylist())
    if live & _paths(opened, run, "added"):
        return True
    if live & _paths(opened, run, "removed"):
        return False
    return None


def _paths(opened: OpenedStream, run: str, name: str) -> set[str]:
    """The files of one record of a run; none if it is gone or damaged."""
    place = files.join(opened.root, "_retention", "reports", f"{run}.{name}.arrow")
    content = files.read_bytes(place) or b""
    table, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(table).digest() != digest:
        return set()
    return set(pa.ipc.open_file(pa.BufferReader(table)).read_all()["path"].to_pylist())
