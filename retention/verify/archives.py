"""Checks of a stream's own archive without its contents: the chain of manifests, and the lengths of copies."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from retention.apply.erasure_run import erasures_of
from retention.apply.reclaim.archived import forgotten
from retention.core.units import INT64_MAX
from retention.core.wording import counted
from retention.erasure.record import ErasureRecord
from retention.errors import DamagedError, StorageError
from retention.history.record import RunRecord
from retention.storage import files
from retention.stores.archive_erasures import (
    Replacements,
    StoredErasure,
    erasure_in,
    erasures_in,
    read_erasure,
)
from retention.stores.archive_manifest import (
    ArchivedFile,
    ArchiveOrigin,
    StoredManifest,
    directory_of,
    has_manifests,
    link_in,
    link_of,
    manifests_in,
    manifests_of,
    place_of,
    read_manifest,
)
from retention.verify.checks import StreamToVerify
from retention.verify.finding import Check, Damage, damage_of_error

Stored = TypeVar("Stored")
FROM_COPY = "restore it from a copy of the archive"
"""The remedy of a damaged archive."""
AGAIN = "erase again, with the same request, or restore the record from a copy of the archive"
UNKNOWN = (
    "restore the erasure's own record from a copy of the warehouse; if there was no such erasure, delete this record, "
    "and restore the copies that it names from a copy of the archive"
)


def own_origin(stream: StreamToVerify) -> ArchiveOrigin:
    """The present table, as an archive names it."""
    table = stream.table
    return ArchiveOrigin(stream.opened.name, table.table_id, table.counters.epoch)


def own_directory(stream: StreamToVerify) -> str | None:
    """The directory of the present table in the configured archive; None: nothing was archived there.

    Tables whose archive only earlier releases wrote have no head of a chain: their manifests, or their runs, tell.
    """
    place = stream.opened.config.archive
    if place is None:
        return None
    directory = directory_of(place, own_origin(stream))
    is_used = stream.table.counters.archive_head or has_manifests(directory)
    return directory if is_used or _recorded(stream, directory) else None


@dataclass(frozen=True)
class ArchiveDocuments:
    """The manifests of one table in an archive, and the records of erasures beside them."""

    directory: str
    manifests: tuple[StoredManifest, ...]
    replacements: Replacements
    damages: tuple[Damage, ...]
    """Damages of the documents; with any, nobody knows which copies have to be there."""

    @property
    def copies(self) -> dict[str, ArchivedFile]:
        """Path → the copy that has to be there.

        Raises:
            DamagedError: a manifest and an erasure contradict each other.
        """
        return {
            copy.path: copy
            for manifest in self.manifests
            for named in manifest.content.files
            for copy in self.replacements.last(named)
        }


def documents_of(stream: StreamToVerify) -> ArchiveDocuments | None:
    """The documents in a stream's own archive, each compared with the log, the runs and the erasures.

    Returns:
        None: nothing was archived.

    Raises:
        RefusedError: a newer release wrote one.
    """
    directory = own_directory(stream)
    if directory is None:
        return None
    damages: list[Damage] = []
    manifests = list(_readable(manifests_in(directory), read_manifest, damages))
    erasures = list(_readable(erasures_in(directory), read_erasure, damages))
    if damages:
        return ArchiveDocuments(directory, (), Replacements(), tuple(damages))
    origin = own_origin(stream)
    of_stream = tuple(each for each in manifests if each.content.origin == origin)
    replacements = Replacements([each for each in erasures if each.content.origin == origin])
    read = ArchiveDocuments(directory, of_stream, replacements, ())
    damages += _of_others(origin, [*manifests, *erasures])
    damages += _missing(stream, directory, of_stream)
    damages += _erasures(stream, read)
    return replace(read, damages=tuple(damages))


def _readable(
    locations: Iterable[str], read: Callable[[str], Stored], damages: list[Damage]
) -> Iterator[Stored]:
    """The documents that can be read; the damages of others join a list."""
    for location in locations:
        try:
            yield read(location)
        except StorageError:
            raise
        except DamagedError as error:
            if files.length(location) is not None:
                damages.append(damage_of_error("archive", location, error))


def check_archive(stream: StreamToVerify) -> Iterator[Damage]:
    """Each manifest and record of an erasure that was written is there, and no other; each copy has its length."""
    documents = documents_of(stream)
    if documents is not None:
        yield from documents.damages or _copies(stream, documents)


def _of_others(
    origin: ArchiveOrigin, documents: Iterable[StoredManifest | StoredErasure]
) -> Iterator[Damage]:
    """Each document names the present table as its origin."""
    for each in documents:
        if each.content.origin != origin:
            theirs = each.content.origin
            detail = f"it is of another table: {theirs.stream}, {theirs.name}"
            yield Damage("archive", each.location, detail, "move it out of this archive")


def _missing(
    stream: StreamToVerify, directory: str, manifests: Sequence[StoredManifest]
) -> Iterator[Damage]:
    """Each manifest that the log leads to, or that a run of an earlier release wrote, is there."""
    known = {each.link: each for each in manifests if each.link is not None}
    link = link_of(stream.table.counters.archive_head)
    while link is not None and link in known:
        link = known[link].content.previous
    names = {each.location.rpartition("/")[2] for each in manifests}
    until_ns = forgotten(directory).get("until_ns", -INT64_MAX)
    for name, run in _recorded(stream, directory).items():
        is_missing = name not in names if link_in(name) is None else link_in(name) == link
        if is_missing and run.as_of_ns > until_ns:
            detail = f"this manifest of the archive is missing; run {run.run} wrote it"
            yield Damage("archive", files.join(manifests_of(directory), name), detail, FROM_COPY)


def _erasures(stream: StreamToVerify, documents: ArchiveDocuments) -> Iterator[Damage]:
    """Each record of an erasure that the warehouse, or a later record, names is there, and each is of an erasure."""
    replacements = documents.replacements
    records = erasures_of(stream.opened).all()
    unknown = list(_unknown(records, replacements))
    yield from unknown
    there = {document.link for document in replacements.stored}
    lost = set(replacements.missing)
    # Without the record, an erasure can be repeated only with the copies that it replaced.
    remedy = FROM_COPY if unknown or _lacks_copies(documents) else AGAIN
    here = documents.directory.rpartition("/")[2]
    for record in {record.request: record for record in records}.values():
        for location in record.archive_records:
            link = erasure_in(location)
            if location.split("/")[-3:-2] == [here] and link not in there:
                lost.discard(str(link))
                detail = f"the archive lacks this record of erasure {record.id}"
                place = files.join(manifests_of(documents.directory), location.rpartition("/")[2])
                yield Damage("archive", place, detail, remedy)
    for link in sorted(lost):
        detail = f"a later record of an erasure names {link}, and the archive has no such record"
        yield Damage("archive", manifests_of(documents.directory), detail, FROM_COPY)


def _unknown(records: Sequence[ErasureRecord], replacements: Replacements) -> Iterator[Damage]:
    """Each record in an archive of which no erasure knows; a killed erasure has not recorded yet what it wrote."""
    known = {erasure_in(location) for record in records for location in record.archive_records}
    unfinished = {record.id for record in records if not record.is_done}
    for document in replacements.stored:
        if document.link not in known and document.content.erasure not in unfinished:
            detail = (
                "no erasure of this warehouse wrote this record: a restore leaves out what it names"
            )
            yield Damage("archive", document.location, detail, UNKNOWN)


def _lacks_copies(documents: ArchiveDocuments) -> bool:
    places = [place_of(documents.directory, path) for path in documents.copies]
    return None in files.lengths(places)


def _recorded(stream: StreamToVerify, directory: str) -> dict[str, RunRecord]:
    """Name of a manifest in a directory → the run that wrote it, which the log or the run's outcome proves committed.

    `archive` may have had another name before. A moved warehouse has its archive under another path: the name of the
    archive, the stream's and the table's identify it.
    """
    _, *identity = directory.rsplit("/", 3)
    recorded: dict[str, RunRecord] = {}
    for run in stream.outcomes:
        if run.archived is not None:
            *there, _, name = run.archived.manifest.split("/")
            is_past = run.is_done and (run.version_after or 0) <= stream.table.version
            if there[-3:] == identity and (link_in(name) is not None or is_past):
                recorded[name] = run
    return recorded


def _copies(stream: StreamToVerify, documents: ArchiveDocuments) -> Iterator[Damage]:
    named = {
        place_of(documents.directory, file.path): (file.file_bytes, manifest.location)
        for manifest in documents.manifests
        for copied in manifest.content.files
        for file in documents.replacements.last(copied)
    }
    places = sampled(stream, sorted(named))
    for place, length in zip(places, files.lengths(places), strict=True):
        wanted, manifest = named[place]
        if length is None and files.length(manifest) is not None:
            yield Damage("archive", place, "the copy is missing", FROM_COPY)
        elif length is not None and length != wanted:
            detail = f"the copy has {counted(length, 'byte')} instead of {wanted:,}"
            yield Damage("archive", place, detail, FROM_COPY)


def sampled(stream: StreamToVerify, names: Sequence[str]) -> list[str]:
    """The copies to look at, sorted: all of them, or the sample of a version."""
    if stream.sample is None or not names:
        return sorted(names)
    count = max(1, round(stream.sample * len(names)))
    return sorted(random.Random(stream.table.version).sample(sorted(names), count))  # noqa: S311


ARCHIVE_CHECKS: list[tuple[str, Check[StreamToVerify]]] = [("archive", check_archive)]
"""The checks of a stream's archive."""
