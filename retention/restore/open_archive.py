"""Opening an archive: the directory of one table, and the manifests in it that the table's own history wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retention.apply.archive_lineage import ancestors, files_of, leaves, links_of, unnamed_files
from retention.apply.own_manifests import Home, own_manifests, without
from retention.core.subjects import path_name
from retention.core.wording import counted, wrong_length
from retention.errors import DamagedError, RefusedError, UsageError
from retention.restore.left_out import refused_histories
from retention.restore.rivals import newest_of_each
from retention.storage import files
from retention.stores.archive_erasures import Replacements, read_replacements
from retention.stores.archive_manifest import (
    ArchivedFile,
    ArchiveOrigin,
    StoredManifest,
    directory_with,
    has_manifests,
    place_of,
    read_manifests,
)


@dataclass(frozen=True)
class Archive:
    """One table's part of an archive, limited to one history of the table."""

    directory: str
    origin: ArchiveOrigin
    is_topic: bool
    files: Sequence[ArchivedFile]
    """Archived files, each once, in order of partition, segment and lowest sequence."""
    manifest_of: Mapping[str, str]
    """Path of a file → the location of the manifest that names it."""
    others: Sequence[StoredManifest] = ()
    """Manifests of other histories of the table: those of a copy, or from before the table was restored from a backup.
    """


def open_archive(place: str, home: Home) -> Archive:
    """Open the archive of an existing table; only its own manifests count.

    Args:
        place: an archive, the directory of one table in it, or a manifest, the last one that counts.
        home: the table.

    Raises:
        UsageError: the location has nothing of that stream.
        RefusedError: the archive is of another table, or from before a purge; the manifest is another history's; or two
            manifests contradict each other.
        DamagedError: a manifest differs from what was written, or a copy is missing.
    """
    directory = _directory(place, home.origin.stream, home.origin)
    manifests = _manifests(directory)
    if _table_of(manifests[0]) != (home.origin.table_id, home.origin.epoch):
        raise _elsewhere(directory, home.origin)
    accepted = own_manifests(manifests, home)
    if directory_with(place) is not None:
        last = _named(place, manifests)
        if without([last], accepted):
            raise refused_histories(home.origin.stream, [last])
        accepted = _up_to(last, accepted)
    known = files_of(accepted)
    others = [
        manifest for manifest in without(manifests, accepted) if unnamed_files(manifest, known)
    ]
    return _archive(directory, accepted, others)


def open_any_archive(place: str, stream: str, home: Home | None) -> Archive:
    """Open the archive of any table for a restore into a new stream.

    Args:
        place: as `open_archive`; unless it is a manifest, the archive must have a single history.
        stream: the name of the stream in the archive.
        home: the existing table of that name; if the archive is its own, its own manifests count.

    Raises:
        UsageError: the location has nothing of that stream, or archives of several tables.
        RefusedError: it has manifests of several histories, or two that contradict each other.
        DamagedError: as `open_archive`.
    """
    directory = _directory(place, stream, None)
    manifests = _manifests(directory)
    if directory_with(place) is not None:
        return _archive(directory, _up_to(_named(place, manifests), manifests))
    if home is not None and _table_of(manifests[0]) == (home.origin.table_id, home.origin.epoch):
        return open_archive(directory, home)
    if len(leaves(manifests)) > 1:
        raise refused_histories(stream, manifests)
    return _archive(directory, manifests)


def _directory(place: str, stream: str, home: ArchiveOrigin | None) -> str:
    """The directory of one table at, above or below a location."""
    inside = directory_with(place)
    if inside is not None:
        return inside
    return place if has_manifests(place) else _of_stream(place, stream, home)


def _of_stream(place: str, stream: str, home: ArchiveOrigin | None) -> str:
    base = files.join(place, path_name(stream))
    there = [name for name in files.directories(base) if has_manifests(files.join(base, name))]
    if home is not None and there:
        if home.name not in there:
            raise _elsewhere(base, home)
        there = [home.name]
    if len(there) == 1:
        return files.join(base, there[0])
    if not there:
        raise UsageError(
            f"{place}: has no archive of {stream}; name the location that `archive:` names in the configuration"
        )
    raise UsageError(
        f"{base}: has archives of several tables ({', '.join(there)}), each with its own sequences; name the "
        "directory of one of them"
    )


def _manifests(directory: str) -> list[StoredManifest]:
    """The manifests of one table, at least one."""
    manifests = list(read_manifests(directory))
    if not manifests:
        raise UsageError(
            f"{directory}: has no manifest of an archive; name the location that `archive:` names in the "
            "configuration"
        )
    if len({manifest.content.origin for manifest in manifests}) != 1:
        raise DamagedError(
            f"{directory}: its manifests are of several tables; nothing was changed; restore them from a copy"
        )
    return manifests


def _named(location: str, manifests: Sequence[StoredManifest]) -> StoredManifest:
    for manifest in manifests:
        if manifest.location == location:
            return manifest
    raise UsageError(f"{location}: there is no such manifest; name an existing one")


def _up_to(last: StoredManifest, manifests: Sequence[StoredManifest]) -> list[StoredManifest]:
    """A manifest and its predecessors; those of an earlier release's manifest are unknown."""
    if last.link is None:
        return [last]
    before = ancestors(last.link, links_of(manifests))
    return [manifest for manifest in manifests if manifest.link in before]


def _table_of(manifest: StoredManifest) -> tuple[str, int]:
    return manifest.content.origin.table_id, manifest.content.origin.epoch


def _elsewhere(place: str, home: ArchiveOrigin) -> RefusedError:
    return RefusedError(
        f"{home.stream}: {place} is the archive of another table, or of the topic before a purge: its sequences belong "
        "to other messages; nothing was changed; restore them into a new stream, with --as"
    )


def _archive(
    directory: str, accepted: Sequence[StoredManifest], others: Sequence[StoredManifest] = ()
) -> Archive:
    newest = _left_of_each(newest_of_each(accepted), read_replacements(directory))
    copies = sorted(
        (copy for copy, _ in newest.values()),
        key=lambda copy: (copy.partition, copy.segment, copy.min_seq, copy.path),
    )
    [first, *_] = [*accepted, *others]
    archive = Archive(
        directory,
        first.content.origin,
        first.content.is_topic,
        copies,
        {path: location for path, (_, location) in newest.items()},
        others,
    )
    _refuse_incomplete(archive)
    return archive


def _left_of_each(
    newest: Mapping[str, tuple[ArchivedFile, str]], replacements: Replacements
) -> dict[str, tuple[ArchivedFile, str]]:
    """Path → what erasures left of each copy, and the location of the manifest that named the copy.

    Raises:
        DamagedError: a record of an erasure is missing, or contradicts a manifest.
    """
    if replacements.missing:
        raise DamagedError(
            f"the archive lacks {counted(len(replacements.missing), 'record')} of erasures that a later one names, "
            f"such as {replacements.missing[0]}, so erased messages could come back; nothing was changed; restore "
            "the records from a copy of the archive"
        )
    return {
        copy.path: (copy, location)
        for named, location in newest.values()
        for copy in replacements.last(named)
    }


def _refuse_incomplete(archive: Archive) -> None:
    places = [place_of(archive.directory, copy.path) for copy in archive.files]
    lengths = files.lengths(places)
    for place, length, copy in zip(places, lengths, archive.files, strict=True):
        if length != copy.file_bytes:
            raise DamagedError(
                f"{place}: this copy of an archive {wrong_length(length, copy.file_bytes)}; nothing was changed; "
                "restore it from a copy of the archive"
            )
