"""Checks of the contents of a stream's own archive: each copy against its digest, and against the removals of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retention.context.context import OpenedStream
from retention.core.seq_ranges import in_ranges, merged_ranges
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.errors import DamagedError, StorageError
from retention.inspect.taken import Taken
from retention.plan.run_ranges import sequences_of
from retention.storage import files
from retention.storage.digesting import digest_of_file
from retention.stores.archive_erasures import Replacements
from retention.stores.archive_manifest import (
    ArchivedFile,
    copies_of,
    place_of,
)
from retention.stores.table_format import Inspection
from retention.verify.archives import FROM_COPY, ArchiveDocuments, documents_of, sampled
from retention.verify.checks import StreamToVerify
from retention.verify.finding import Damage, Unverified, damage_of_error

_OF_NOBODY = (
    "no manifest names this file: a run that was killed left it, a run at work is about to name it, or another program "
    "put it there; delete it if no run is at work"
)


@dataclass(frozen=True)
class CopyToVerify:
    """A task: a copy in an archive, with what a manifest or an erasure says about it."""

    directory: str
    copy: ArchivedFile

    @property
    def location(self) -> str:
        """The location of the copy."""
        return place_of(self.directory, self.copy.path)


@dataclass(frozen=True)
class ArchiveFindings:
    """The findings in the contents of an archive."""

    damages: tuple[Damage, ...] = ()
    unnamed: tuple[Unverified, ...] = ()
    """The files that no manifest names."""


def verify_archive(
    opened: OpenedStream, table: Inspection, engines: Engines, sample: float | None
) -> ArchiveFindings:
    """Read the contents of a stream's archive.

    Args:
        opened: the stream.
        table: its table, by which its archive is known.
        engines: where copies are read.
        sample: the share of the copies to read; None: all.

    Raises:
        StorageError: the archive cannot be read.
    """
    stream = StreamToVerify(opened, table, sample)
    try:
        documents = documents_of(stream)
        if documents is None or documents.damages:
            # The other checks have named the damages of documents.
            return ArchiveFindings()
        return _findings(stream, engines, documents)
    except StorageError:
        raise
    except DamagedError as error:
        return ArchiveFindings((damage_of_error("archive", "", error),))


def _findings(
    stream: StreamToVerify, engines: Engines, documents: ArchiveDocuments
) -> ArchiveFindings:
    damages = _of_contents(stream, engines, documents)
    if stream.sample is None and not damages:
        damages += _uncovered(stream, documents)
    there = files.walk(copies_of(documents.directory))
    # A run names its copies after it has written them, so the names are read again.
    newest = documents_of(stream) or documents
    unnamed = sorted(set(there) - newest.copies.keys())
    damages += _returned(stream, newest, unnamed)
    nobodys = [path for path in unnamed if not newest.replacements.has(path)]
    return ArchiveFindings(
        tuple(damages),
        tuple(Unverified(place_of(newest.directory, path), _OF_NOBODY) for path in nobodys),
    )


def _of_contents(
    stream: StreamToVerify, engines: Engines, documents: ArchiveDocuments
) -> list[Damage]:
    copies = documents.copies
    paths = sampled(stream, list(copies))
    tasks = [CopyToVerify(documents.directory, copies[path]) for path in paths]
    weights = [task.copy.file_bytes for task in tasks]
    opened = stream.opened
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    results = engine.map(verify_copy, tasks, weights)
    return [each for each in results if each is not None]


def _returned(
    stream: StreamToVerify, documents: ArchiveDocuments, unnamed: Sequence[str]
) -> Iterator[Damage]:
    """Each copy with erased messages that an erasure replaced, and that is there."""
    resumed = command("erase", stream.opened.name, options="--resume")
    remedy = f"erase again, with the same request, or finish an unfinished one with {resumed}"
    for path in unnamed:
        place = place_of(documents.directory, path)
        if documents.replacements.has(path) and files.length(place) is not None:
            detail = "an erasure replaced this copy, and it is there, with the erased messages"
            yield Damage("archive", place, detail, remedy)


def verify_copy(task: CopyToVerify) -> Damage | None:
    """The damage of one copy; None: it is as it was written. A missing one, or its length, is results without reading.

    Raises:
        StorageError: it cannot be read.
    """
    if files.length(task.location) != task.copy.file_bytes:
        return None
    if digest_of_file(task.location) == task.copy.sha256:
        return None
    detail = "the copy is not what was copied: its SHA-256 differs from the manifest's"
    return Damage("archive", task.location, detail, FROM_COPY)


def _uncovered(stream: StreamToVerify, documents: ArchiveDocuments) -> Iterator[Damage]:
    """Each run whose copies lack messages that it removed, by its evidence."""
    directory = documents.directory
    by_name = {each.location.rpartition("/")[2]: each for each in documents.manifests}
    taken = Taken(stream.opened)
    for run in stream.outcomes:
        name = "" if run.archived is None else run.archived.manifest.rpartition("/")[2]
        manifest = by_name.get(name)
        if manifest is None or not run.is_done:
            continue
        named = manifest.content.files
        if not _is_whole(directory, named, documents.replacements):
            continue
        removed = _removed_by(taken, run.run)
        if removed is None:
            continue
        have = sum(_common(directory, copy, removed) for copy in named)
        if have != run.removed_messages:
            counts = f"{counted(have, 'message')} of the {run.removed_messages:,}"
            detail = f"its copies have {counts} that run {run.run} removed"
            yield Damage("archive", manifest.location, detail, FROM_COPY)


def _is_whole(directory: str, named: Sequence[ArchivedFile], replacements: Replacements) -> bool:
    """Whether copies are there with their lengths, and no erasure took messages out of them."""
    lengths = files.lengths([place_of(directory, copy.path) for copy in named])
    wanted = [copy.file_bytes for copy in named]
    return lengths == wanted and not any(replacements.has(copy.path) for copy in named)


def _removed_by(taken: Taken, run: str) -> Mapping[int, np.ndarray] | None:
    """Partition → the ranges that a run removed; None: they are not known exactly."""
    ranges = taken.of_run(run)
    if ranges is None or not ranges.is_exact:
        return None
    by_partition: dict[int, list[np.ndarray]] = {}
    for rows in ranges.tables():
        for partition in rows["partition"].unique().to_pylist():
            here = rows.filter(np.equal(rows["partition"].to_numpy(), partition))
            by_partition.setdefault(partition, []).append(sequences_of(here))
    return {
        partition: merged_ranges(np.concatenate(parts)) for partition, parts in by_partition.items()
    }


def _common(directory: str, copy: ArchivedFile, removed: Mapping[int, np.ndarray]) -> int:
    ranges = removed.get(copy.partition)
    if ranges is None:
        return 0
    seqs = read_columns(copy.data_file(directory), ("seq",))[0]["seq"].to_numpy()
    return int(in_ranges(seqs, ranges).sum())
