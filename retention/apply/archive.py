"""Archiving: every file that a run is about to remove is copied elsewhere, read back and compared first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from retention.apply.archive_place import check_place
from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.json_object import JsonObject
from retention.core.labels import labelled
from retention.core.read_count import ReadCount
from retention.core.seq_ranges import ranges_in
from retention.core.table_requirements import AssertArchiveHead, TableRequirement
from retention.core.table_updates import SetArchiveHead, TableUpdate
from retention.datafile.parquet import open_messages, unreadable_error
from retention.engines.select import Engines
from retention.errors import VerificationError
from retention.history.record import ArchivedCopies
from retention.ports import Snapshot
from retention.rules import RULES
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.digesting import PIECE_BYTES, digest_of_file
from retention.stores.archive_manifest import (
    ArchivedFile,
    ArchiveOrigin,
    Manifest,
    StoredManifest,
    Writer,
    directory_of,
    link_of,
    number_of,
    place_of,
    write_manifest,
)

"""Bytes of a file kept in memory at a time."""
_KEPT = (
    "path",
    "partition",
    "segment",
    "file_bytes",
    "messages",
    "bytes",
    "min_seq",
    "max_seq",
    "min_ts_ns",
    "max_ts_ns",
)


@dataclass(frozen=True)
class LeavingFiles:
    """The files that a commit is about to remove from a table."""

    files: pa.Table
    """Shape `FILE_STATS`, with `by_<rule>` where a plan gives it; a file that loses only some rows is archived whole.
    """
    name: str
    """The plan's id."""
    as_of_ns: int
    by_rule: Mapping[str, int]


@dataclass(frozen=True)
class CommitTerms:
    """The requirements and updates that archived copies add to the commit that removes the files."""

    requirements: Sequence[TableRequirement] = ()
    updates: Sequence[TableUpdate] = ()


@dataclass(frozen=True)
class Archived:
    """The archived copies of one run."""

    manifest: StoredManifest
    bytes: int
    """The total length of the copies."""
    read: ReadCount
    terms: CommitTerms
    """The place of the manifest in the table's history, part of the commit that removes the files."""

    def as_json(self) -> JsonObject:
        """The copies' manifest, number and length, and the previous manifest, for reports and the run history."""
        stored = self.manifest
        return {
            "manifest": stored.location,
            "files": len(stored.content.files),
            "bytes": self.bytes,
            "previous": stored.content.previous,
        }


@dataclass(frozen=True)
class ArchiveTask:
    """A task: copy a data file to an archive, unless an identical copy exists."""

    source: DataFile
    target: str

    @property
    def copy(self) -> DataFile:
        """The file as it is read from the archive."""
        return replace(self.source, location=self.target, later=None)


@labelled(step="archive files")
def archive(
    opened: OpenedStream, leaving: LeavingFiles, snapshot: Snapshot, engines: Engines
) -> Archived | None:
    """Copy departing files to the stream's archive, with a manifest; None: there is no archive, or no such file.

    Raises:
        RefusedError: the warehouse is a copy, and the archive belongs to the original.
        DamagedError: a file differs from what was committed.
        VerificationError: a copy, read back, differs from the file.
        StorageError: the archive cannot be written or read.
    """
    place = opened.config.archive
    if place is None or not leaving.files.num_rows:
        return None
    check_place(opened)
    counters = snapshot.counters
    origin = ArchiveOrigin(opened.name, snapshot.table_id, counters.epoch)
    directory = directory_of(place, origin)
    sources = opened.store.data_files(leaving.files)
    tasks = [ArchiveTask(source, place_of(directory, source.path)) for source in sources]
    weights: list[int] = leaving.files["file_bytes"].to_pylist()
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    digests = engine.map(archive_file, tasks, weights)
    rows = leaving.files.to_pylist()
    copies = tuple(map(_archived, rows, sources, digests))
    manifest = Manifest(
        origin,
        opened.dialect.is_topic,
        leaving.name,
        leaving.as_of_ns,
        leaving.by_rule,
        copies,
        link_of(counters.archive_head),
        Writer(opened.warehouse, os.uname().nodename),
    )
    stored = write_manifest(directory, manifest)
    terms = _terms(counters.archive_head, stored)
    return Archived(stored, sum(weights), ReadCount(len(copies), sum(weights)), terms)


def terms_of(archived: Archived | None) -> CommitTerms:
    """The terms of a commit that removes archived files; empty if nothing was archived."""
    return CommitTerms() if archived is None else archived.terms


def copies_of(archived: Archived | None) -> ArchivedCopies | None:
    """The run history's record of the archived copies; None: nothing was archived."""
    return None if archived is None else ArchivedCopies(**archived.as_json())


def _terms(before: int, stored: StoredManifest) -> CommitTerms:
    """The terms by which the commit names the new manifest and requires the one that it follows."""
    after = number_of(stored.link or "0")
    return CommitTerms([AssertArchiveHead(before)], [SetArchiveHead(after)])


def archive_file(task: ArchiveTask) -> str:
    """Carry out an `ArchiveTask`; return the SHA-256 of the file, computed from the copy as read back.

    Raises:
        DamagedError, VerificationError, StorageError: as `archive`.
    """
    source = task.source
    wanted = _same(task) or _copied(task)
    if digest_of(task.copy) != wanted:
        raise VerificationError(
            f"{task.target}: this copy of {source.location} differs when read; nothing was removed; check "
            "the archive's storage, then try again"
        )
    open_messages(task.copy)
    reached(Step.ARCHIVE_COPIED)
    return wanted


def digest_of(file: DataFile) -> str:
    """The SHA-256 of a data file, read one piece at a time.

    Raises:
        DamagedError: it is missing.
        StorageError: it cannot be read.
    """
    try:
        return digest_of_file(file.location)
    except FileNotFoundError as error:
        raise unreadable_error(file, error) from error


def _same(task: ArchiveTask) -> str | None:
    """The digest of a file that an earlier run has already copied; None: no run has."""
    length = files.length(task.source.location)
    if length is None or files.length(task.target) != length:
        return None
    wanted = digest_of(task.source)
    return wanted if digest_of(task.copy) == wanted else None


def _copied(task: ArchiveTask) -> str:
    """Copy a file; return the digest of the bytes read."""
    digest = hashlib.sha256()
    with files.create(task.target) as sink:
        for piece in _pieces(task.source):
            digest.update(piece)
            sink.write(piece)
    return digest.hexdigest()


def _pieces(file: DataFile) -> Iterator[bytes]:
    try:
        yield from files.chunks(file.location, PIECE_BYTES)
    except FileNotFoundError as error:
        raise unreadable_error(file, error) from error


def _archived(row: Mapping[str, Any], source: DataFile, sha256: str) -> ArchivedFile:
    taken = {rule: row[f"by_{rule}"] for rule in RULES if row.get(f"by_{rule}")}
    kept_columns = {name: row[name] for name in _KEPT}
    hidden: list[list[int]] = ranges_in(source.hidden).tolist()
    return ArchivedFile(**kept_columns, sha256=sha256, by_rule=taken, hidden=hidden)
