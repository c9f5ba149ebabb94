"""Checks of a stream's own archive without its contents: the chain of manifests, and the lengths of copies."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from retention.apply.erasure_run import erasures_of
from retention.apply.reclaim.archived import forgotten
from retention.core.wording import counted
from retention.storage import files
from retention.stores.archive_erasures import Replacements, erasure_in, read_replacements
from retention.stores.archive_manifest import (
    ArchiveOrigin,
    StoredManifest,
    directory_of,
    link_in,
    link_of,
    manifests_of,
    place_of,
    read_manifests,
)
from retention.verify.checks import StreamToVerify
from retention.verify.finding import Check, Damage

FROM_COPY = "restore it from a copy of the archive"
"""The remedy of a damaged archive."""
_AGAIN = "erase again, with the same request, or restore the record from a copy of the archive"


def own_directory(stream: StreamToVerify) -> str | None:
    """The directory of the present table in the configured archive; None: nothing was archived there."""
    place, counters = stream.opened.config.archive, stream.table.counters
    if place is None or not counters.archive_head:
        return None
    origin = ArchiveOrigin(stream.opened.name, stream.table.table_id, counters.epoch)
    return directory_of(place, origin)


def check_archive(stream: StreamToVerify) -> Iterator[Damage]:
    """Each manifest that the log leads to, each record of an erasure, and each copy with its length is there."""
    directory = own_directory(stream)
    if directory is None:
        return
    manifests = list(read_manifests(directory))
    known = {each.link: each for each in manifests if each.link is not None}
    missing = _missing(link_of(stream.table.counters.archive_head), known)
    recorded = _recorded(stream, directory)
    if missing in recorded and not forgotten(directory):
        detail = "the log leads to this manifest of the archive, and it is missing"
        yield Damage("archive", recorded[missing], detail, FROM_COPY)
    replacements = read_replacements(directory)
    yield from _erasures(stream, directory, replacements)
    yield from _copies(stream, directory, manifests, replacements)


def _erasures(
    stream: StreamToVerify, directory: str, replacements: Replacements
) -> Iterator[Damage]:
    """Each record of an erasure that the warehouse, or a later record, names is there."""
    there = {document.link for document in replacements.stored}
    newest = {record.request: record for record in erasures_of(stream.opened).all()}
    for record in newest.values():
        for location in record.archive_records:
            is_here = location.split("/")[-3:-2] == [directory.rpartition("/")[2]]
            if is_here and erasure_in(location) not in there:
                detail = f"the archive lacks this record of erasure {record.id}"
                place = files.join(manifests_of(directory), location.rpartition("/")[2])
                yield Damage("archive", place, detail, _AGAIN)
    for link in replacements.missing:
        detail = f"a later record of an erasure names {link}, and the archive has no such record"
        yield Damage("archive", manifests_of(directory), detail, FROM_COPY)


def _missing(head: str | None, known: Mapping[str, StoredManifest]) -> str:
    """The first link on the way from the newest manifest to the oldest that no manifest has; empty: none is missing."""
    link = head
    while link is not None and link in known:
        link = known[link].content.previous
    return link or ""


def _recorded(stream: StreamToVerify, directory: str) -> dict[str, str]:
    """Link → location of the manifests in a directory, by the run history.

    `archive` may have had another name before. A moved warehouse has its archive under another path: the name of the
    archive, the stream's and the table's identify it.
    """
    _, *identity = directory.rsplit("/", 3)
    locations = [each.archived.manifest for each in stream.outcomes if each.archived is not None]
    return {
        link: files.join(directory, *location.rsplit("/", 2)[1:])
        for location in locations
        if (link := link_in(location)) is not None and location.split("/")[-5:-2] == identity
    }


def _copies(
    stream: StreamToVerify,
    directory: str,
    manifests: list[StoredManifest],
    replacements: Replacements,
) -> Iterator[Damage]:
    named = {
        place_of(directory, file.path): (file.file_bytes, manifest.location)
        for manifest in manifests
        for copied in manifest.content.files
        for file in replacements.last(copied)
    }
    places = sorted(named)
    if stream.sample is not None and places:
        count = max(1, round(stream.sample * len(places)))
        places = random.Random(stream.table.version).sample(places, count)  # noqa: S311
    for place, length in zip(places, files.lengths(places), strict=True):
        wanted, manifest = named[place]
        if length is None and files.length(manifest) is not None:
            yield Damage("archive", place, "the copy is missing", FROM_COPY)
        elif length is not None and length != wanted:
            detail = f"the copy has {counted(length, 'byte')} instead of {wanted:,}"
            yield Damage("archive", place, detail, FROM_COPY)


ARCHIVE_CHECKS: list[tuple[str, Check[StreamToVerify]]] = [("archive", check_archive)]
"""The checks of a stream's archive."""
