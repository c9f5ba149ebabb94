"""The records of a run on a table that its undo needs: each changed file before and after, and the rows that went."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.checksum import is_checked, parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.storage.digesting import DigestingSink
from retention.storage.errors import first_line
from retention.tables.opened import OpenedTable

_SCHEMA = pa.schema(
    {"before": pa.string(), "after": pa.string(), "limit": pa.string(), "rows": pa.binary()}
)


@dataclass(frozen=True)
class ChangedFile:
    """A file that a run changed."""

    before: Mapping[str, Any]
    """Its `add` action before the run."""
    after: Mapping[str, Any] | None
    """The `add` action of the same file with another vector, or of its copy; None: all of it went."""
    rows: Mapping[str, BitMap64 | None]
    """Limit → positions in the file before the run, as `plan.FileRemovals.rows`."""
    sha256: str | None = None
    """The SHA-256 of a copy, taken while it was written; None: no copy, or read from a record."""

    @property
    def is_copied(self) -> bool:
        """Whether the remaining rows are in a file of their own."""
        return self.after is not None and self.after["path"] != self.before["path"]

    @property
    def is_whole_or_copied(self) -> bool:
        """Whether the file itself left the table."""
        return self.after is None or self.is_copied

    @property
    def dead(self) -> BitMap64:
        """The positions of the rows that were removed from a file that stayed."""
        return BitMap64.union(
            BitMap64(), *(rows for rows in self.rows.values() if rows is not None)
        )


def write_digests(table: OpenedTable, run: str, digests: Mapping[str, str]) -> None:
    """Record the SHA-256 of the data files that a run is about to commit, by decoded path; durable on return.

    A verification compares them as long as the files are in the table, so no reclaim deletes the record.
    """
    if digests:
        directory = files.join(table.home, "digests")
        files.make_directory(directory)
        content = json.dumps(with_checksum({"files": dict(digests)})).encode()
        files.replace(files.join(directory, f"{run}.json"), content)
        reached(Step.CHANGES_NOTED)


def read_digests(table: OpenedTable) -> dict[str, str]:
    """Decoded path → the SHA-256 of every data file that runs wrote.

    Raises:
        DamagedError: a record cannot be read.
    """
    digests: dict[str, str] = {}
    directory = files.join(table.home, "digests")
    for name in files.names(directory):
        digests |= _digests_in(files.join(directory, name))
    return digests


def _digests_in(location: str) -> dict[str, str]:
    try:
        return dict(_checked(parse_json(files.read_bytes(location) or b""))["files"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedError(
            f"{location}: the record of the digests of files cannot be read ({first_line(error)}); nothing was "
            "changed; restore it from a copy of the warehouse, or delete it: its files are unverified then"
        ) from error


def _checked(record: dict[str, object]) -> dict[str, Any]:
    if not is_checked(record):
        raise ValueError("it has no checksum")
    return verified(record)


def location_of(table: OpenedTable, run: str) -> str:
    """The location of a run's record."""
    return files.join(table.home, "changes", f"{run}.parquet")


def write_changes(table: OpenedTable, run: str, changed: Sequence[ChangedFile]) -> str:
    """Record the files that a run is about to change; durable on return.

    Returns:
        The SHA-256 of the record.
    """
    digest = hashlib.sha256()
    rows = [
        {
            "before": json.dumps(change.before),
            "after": None if change.after is None else json.dumps(change.after),
            "limit": limit,
            "rows": None if rows is None else rows.serialize(),
        }
        for change in changed
        for limit, rows in change.rows.items()
    ]
    files.make_directory(files.join(table.home, "changes"))
    with files.create(location_of(table, run)) as sink:
        stored = DigestingSink(sink, digest)
        pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), stored, compression="zstd")
    reached(Step.CHANGES_NOTED)
    return digest.hexdigest()


def erase_changes(table: OpenedTable, run: str) -> None:
    """Empty the record of the files that a run changed, which can no longer be undone."""
    files.make_directory(files.join(table.home, "changes"))
    with files.create(location_of(table, run)) as sink:
        pq.write_table(_SCHEMA.empty_table(), sink, compression="zstd")
    reached(Step.CHANGES_ERASED)


def erase_digests(table: OpenedTable, is_erased: Callable[[str], bool]) -> None:
    """Forget the digests of files, chosen by their decoded paths.

    Raises:
        DamagedError: a record cannot be read.
    """
    directory = files.join(table.home, "digests")
    for name in files.names(directory):
        known = _digests_in(files.join(directory, name))
        left = {path: sha256 for path, sha256 in known.items() if not is_erased(path)}
        if left != known:
            content = json.dumps(with_checksum({"files": left})).encode()
            files.replace(files.join(directory, name), content)
            reached(Step.CHANGES_ERASED)


def read_changes(table: OpenedTable, run: str) -> list[ChangedFile]:
    """The files that a run changed.

    Raises:
        DamagedError: the record is missing, or is not one.
        StorageError: the storage failed.
    """
    location = location_of(table, run)
    # Arrow's errors about a damaged footer look like those of the storage.
    content = files.read_bytes(location)
    try:
        return list(_changes(pq.read_table(pa.BufferReader(content or b"")).to_pylist()))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DamagedError(
            f"{location}: the record of the files that run {run} changed cannot be read ({first_line(error)}); nothing "
            "was changed; restore it from a copy of the warehouse"
        ) from error


def _changes(rows: Sequence[Mapping[str, Any]]) -> Iterator[ChangedFile]:
    by_file: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_file.setdefault(row["before"], []).append(row)
    for before, of_file in by_file.items():
        after = of_file[0]["after"]
        yield ChangedFile(
            json.loads(before),
            None if after is None else json.loads(after),
            {
                row["limit"]: None if row["rows"] is None else BitMap64.deserialize(row["rows"])
                for row in of_file
            },
        )
