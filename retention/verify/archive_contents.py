"""Checks of the contents of a stream's own archive: each copy against its digest, and against the removals of runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retention.context.context import OpenedStream
from retention.core.seq_ranges import in_ranges, merged_ranges
from retention.core.wording import counted
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.errors import DamagedError, StorageError
from retention.inspect.taken import Taken
from retention.plan.run_ranges import sequences_of
from retention.storage import files
from retention.storage.digesting import digest_of_file
from retention.stores.archive_erasures import Replacements, read_replacements
from retention.stores.archive_manifest import (
    ArchivedFile,
    StoredManifest,
    place_of,
    read_manifests,
)
from retention.stores.table_format import Inspection
from retention.verify.archives import FROM_COPY, own_directory
from retention.verify.checks import StreamToVerify
from retention.verify.finding import Damage, damage_of_error


@dataclass(frozen=True)
class CopyToVerify:
    """A task: a copy in an archive, with what a manifest or an erasure says about it."""

    directory: str
    copy: ArchivedFile

    @property
    def location(self) -> str:
        """The location of the copy."""
        return place_of(self.directory, self.copy.path)


def archive_damages(
    opened: OpenedStream, table: Inspection, engines: Engines, sample: float | None
) -> list[Damage]:
    """The damages of the contents of a stream's archive.

    Args:
        opened: the stream.
        table: its table, by which its archive is known.
        engines: where copies are read.
        sample: the share of the copies to read; None: all.

    Raises:
        StorageError: the archive cannot be read.
    """
    stream = StreamToVerify(opened, table, sample)
    directory = own_directory(stream)
    if directory is None:
        return []
    try:
        manifests = list(read_manifests(directory))
        replacements = read_replacements(directory)
        return _of_contents(stream, engines, directory, manifests, replacements)
    except StorageError:
        raise
    except DamagedError as error:
        return [damage_of_error("archive", directory, error)]


def _of_contents(
    stream: StreamToVerify,
    engines: Engines,
    directory: str,
    manifests: Sequence[StoredManifest],
    replacements: Replacements,
) -> list[Damage]:
    copies = {
        copy.path: copy
        for manifest in manifests
        for named in manifest.content.files
        for copy in replacements.last(named)
    }
    paths = sorted(copies)
    if stream.sample is not None and paths:
        count = max(1, round(stream.sample * len(paths)))
        paths = sorted(random.Random(stream.table.version).sample(paths, count))  # noqa: S311
    tasks = [CopyToVerify(directory, copies[path]) for path in paths]
    weights = [task.copy.file_bytes for task in tasks]
    opened = stream.opened
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    results = engine.map(verify_copy, tasks, weights)
    damages = [each for each in results if each is not None]
    if stream.sample is None and not damages:
        damages += _uncovered(stream, directory, manifests, replacements)
    return damages


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


def _uncovered(
    stream: StreamToVerify,
    directory: str,
    manifests: Sequence[StoredManifest],
    replacements: Replacements,
) -> Iterator[Damage]:
    """Each run whose copies have other numbers of the messages that it removed than its manifest says."""
    by_name = {manifest.location.rpartition("/")[2]: manifest for manifest in manifests}
    taken = Taken(stream.opened)
    for run in stream.outcomes:
        name = "" if run.archived is None else run.archived.manifest.rpartition("/")[2]
        manifest = by_name.get(name)
        if manifest is None or not run.is_done:
            continue
        named = manifest.content.files
        if any(replacements.has(copy.path) or not copy.by_rule for copy in named):
            # What is erased is in no copy, and roll-ups have no rules by file.
            continue
        removed = _removed_by(taken, run.run)
        if removed is None:
            continue
        have = sum(_common(directory, copy, removed) for copy in named)
        wanted = sum(sum(copy.by_rule.values()) for copy in named)
        if have != wanted:
            detail = (
                f"the copies have {counted(have, 'message')} of those that run {run.run} removed, by its evidence, "
                f"and the manifest says {wanted:,}"
            )
            yield Damage("archive", manifest.location, detail, FROM_COPY)


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
