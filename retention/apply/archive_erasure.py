"""An erasure in archives: copies are written without its rows, a document names both, and the old ones are deleted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.archive import digest_of
from retention.apply.archive_survey import ArchivedTable, ArchiveSurvey
from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.seq_ranges import in_ranges, merged_ranges
from retention.datafile.parquet import open_messages, read_columns, write_messages
from retention.datafile.rewrite import RewriteTask, remaining_rows
from retention.engines.select import Engines
from retention.erasure.copies import erased_rows
from retention.errors import DamagedError, StorageError, VerificationError
from retention.rules.erase import ErasedMessages
from retention.storage import files
from retention.storage.bucket_versions import kept_versions
from retention.storage.crash_points import Step, reached
from retention.stores.archive_erasures import (
    ArchiveErasure,
    ReplacedCopy,
    read_replacements,
    write_erasure,
)
from retention.stores.archive_manifest import ArchivedFile, ArchiveOrigin, place_of, read_manifests


@dataclass(frozen=True)
class RewriteCopyTask:
    """A task: write an archived file without the rows of an erasure."""

    directory: str
    copy: ArchivedFile
    messages: ErasedMessages
    path: str
    """The path of the new copy below `messages/`."""

    @property
    def source(self) -> DataFile:
        """The archived file, with the rows that were released before it was archived."""
        return self.copy.data_file(self.directory)


@labelled(step="erase in archives")
def erase_in_archives(
    opened: OpenedStream, survey: ArchiveSurvey, erasure: str, engines: Engines
) -> list[str]:
    """Erase messages in archives; sentences for those that could not be written.

    A kill leaves the old copies, or both, or the new ones with a document that names them. The next run ends the same.

    Args:
        opened: the stream.
        survey: the copies with such messages.
        erasure: the id of the erasure.
        engines: where copies are written.

    Raises:
        VerificationError: a copy without the rows, read back, differs from what was expected.
    """
    failed: list[str] = []
    for table in survey.tables:
        if table.copies:
            try:
                _erase_in(opened, table, erasure, engines)
            except (StorageError, DamagedError, OSError) as error:
                text = str(error).replace("; nothing was changed", "")
                failed.append(f"{table.directory}: this archive still has messages of it: {text}")
    return failed


def beyond_reach(opened: OpenedStream, survey: ArchiveSurvey) -> list[str]:
    """Sentences about places that no erasure of a stream reaches: versions in buckets, archives of other warehouses."""
    places = [opened.warehouse, opened.layout.messages, *survey.directories]
    theirs = [
        f"{directory}: this archive is of another warehouse, and may have the same messages: erase there, too"
        for directory in survey.outside
    ]
    return [*kept_versions(places), *theirs]


def _erase_in(opened: OpenedStream, table: ArchivedTable, erasure: str, engines: Engines) -> None:
    named = [
        (copy, copy.named)
        for copy in table.copies
        if copy.named is not None and not table.replacements.has(copy.path)
    ]
    tasks = [
        RewriteCopyTask(table.directory, file, copy.messages, _new_path(erasure, file.path))
        for copy, file in named
    ]
    weights = [file.file_bytes for _, file in named]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    written = engine.map(rewrite_copy, tasks, weights)
    if tasks:
        replaced = tuple(
            ReplacedCopy(file.path, file.sha256, by)
            for (_, file), by in zip(named, written, strict=True)
        )
        newest = read_replacements(table.directory)
        document = ArchiveErasure(erasure, _origin_of(table), opened.clock(), newest.ends, replaced)
        write_erasure(table.directory, document)
    files.delete(copy.location for copy in table.copies)
    reached(Step.ARCHIVE_ERASED)


def rewrite_copy(task: RewriteCopyTask) -> ArchivedFile | None:
    """Carry out a `RewriteCopyTask`, and read the new copy back; None: no row is left.

    Raises:
        DamagedError: the archived file is not what its manifest names, or cannot be read.
        VerificationError: the new copy, read back, has other rows.
    """
    source = task.source
    if digest_of(source) != task.copy.sha256:
        raise DamagedError(
            f"{source.location}: this copy of an archive is not what was copied (its SHA-256 differs from the "
            "manifest's); restore it from a copy of the archive"
        )
    erased = np.concatenate(list(_erased_seqs(task)))
    removed = merged_ranges(np.stack([erased, erased], axis=1))
    seqs = read_columns(source, ("seq",))[0]["seq"].to_numpy()
    left = int((~in_ranges(seqs, removed)).sum())
    return _written(task, removed, left) if left else None


def _written(task: RewriteCopyTask, removed: np.ndarray, left: int) -> ArchivedFile:
    source = task.source
    place = place_of(task.directory, task.path)
    target = DataFile(task.path, source.partition, source.segment, place, "")
    rewrite = RewriteTask(source, (target,), removed)
    sha256 = write_messages(place, remaining_rows(rewrite, open_messages(source)))
    rows = read_columns(target, ("seq", "ts_ns", "size"))[0]
    if rows.num_rows != left or digest_of(target) != sha256:
        raise VerificationError(
            f"{place}: this copy of an archive differs when read; the copy with the erased messages is kept; check "
            "the archive's storage, then try again"
        )
    reached(Step.ARCHIVE_REWRITTEN)
    return _described(target, rows, sha256)


def _described(file: DataFile, rows: pa.Table, sha256: str) -> ArchivedFile:
    """The new copy, as the document of the erasure names it."""
    seqs, times = (rows[name].to_numpy() for name in ("seq", "ts_ns"))
    return ArchivedFile(
        path=file.path,
        partition=file.partition,
        segment=file.segment,
        file_bytes=files.stat(file.location)[0],
        sha256=sha256,
        messages=rows.num_rows,
        bytes=int(pc.sum(rows["size"]).as_py()),
        min_seq=int(seqs.min()),
        max_seq=int(seqs.max()),
        min_ts_ns=int(times.min()),
        max_ts_ns=int(times.max()),
        by_rule={},
        hidden=[],
    )


def _erased_seqs(task: RewriteCopyTask) -> Iterator[np.ndarray]:
    location = place_of(task.directory, task.copy.path)
    for rows in erased_rows(location, task.messages, ("seq", "subject", "ts_ns")):
        yield rows["seq"].to_numpy()


def _new_path(erasure: str, path: str) -> str:
    """The path of the copy that replaces another one: the same whenever an erasure is repeated."""
    directory = path.rpartition("/")[0]
    digest = hashlib.sha256(f"{erasure}/{path}".encode()).hexdigest()
    return files.join(directory, f"{digest[:32]}.parquet")


def _origin_of(table: ArchivedTable) -> ArchiveOrigin:
    return next(iter(read_manifests(table.directory))).content.origin
