"""Retention of an archive: a reclaim deletes the oldest copies after `archive_keep`, and keeps a record of that."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retention.context.context import OpenedStream
from retention.core.json_object import JsonObject
from retention.core.spans import Array
from retention.core.subjects import path_name
from retention.core.units import INT64_MAX, MILLISECOND
from retention.errors import DamagedError
from retention.history.initiator import initiator
from retention.rules.holds import LegalHolds
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.stores.archive_erasures import Replacements, read_replacements
from retention.stores.archive_manifest import StoredManifest, place_of, read_manifests
from retention.stores.sidecar.warehouse_place import NotedPlaces, Place, noted_places

_FORGOTTEN = "forgotten.json"
_DELETING = "deleting"


@dataclass(frozen=True)
class SpentCopies:
    """The manifests of one table's archive that are no longer kept, and the copies that only they name."""

    directory: str
    manifests: tuple[StoredManifest, ...]
    paths: tuple[str, ...]
    """The copies, by their paths below `messages/`, with those that a killed reclaim left."""

    @property
    def copies(self) -> list[str]:
        """The locations of the copies."""
        return [place_of(self.directory, path) for path in self.paths]

    @property
    def locations(self) -> list[str]:
        """The locations of all files to delete."""
        return [*(manifest.location for manifest in self.manifests), *self.copies]


@dataclass(frozen=True)
class FileBounds:
    """The bounds of some files, one entry per file, by which a legal hold may cover their messages."""

    min_seq: Array
    max_seq: Array
    min_ts_ns: Array
    max_ts_ns: Array

    @classmethod
    def of(cls, manifest: StoredManifest) -> FileBounds:
        """The bounds of the files that a manifest names."""
        names = ("min_seq", "max_seq", "min_ts_ns", "max_ts_ns")
        copies = manifest.content.files
        return cls(
            *(np.array([getattr(copy, name) for copy in copies], np.int64) for name in names)
        )


@dataclass(frozen=True)
class _Terms:
    """The terms under which copies of a stream are deleted."""

    places: NotedPlaces
    holds: LegalHolds
    cutoff_ns: int

    def allow(self, manifest: StoredManifest, written_ns: int) -> bool:
        """Whether a manifest is old, of this warehouse, and without messages that a legal hold may cover."""
        writer = manifest.content.writer
        return (
            writer is not None
            and max(written_ns, manifest.content.as_of_ns) < self.cutoff_ns
            and self.places.has(_place(writer.warehouse))
            and not self.holds.may_cover(FileBounds.of(manifest))
        )


def spent_copies(opened: OpenedStream, holds: LegalHolds, now_ns: int) -> list[SpentCopies]:
    """The copies in a stream's archive that are older than `archive_keep`, by table; nothing is changed.

    A manifest is kept while it is young, while a legal hold may cover a message in it, while an earlier one of its
    history is kept, and if another or an unknown warehouse wrote it. Its age is that of its file, or of the pass's
    instant, if that is later.

    Args:
        opened: the stream.
        holds: the legal holds in effect.
        now_ns: the present, nanoseconds since the epoch.

    Raises:
        DamagedError: a manifest, or the record of earlier deletions, differs from what was written.
        RefusedError: a newer release wrote a manifest.
    """
    archive, kept_ns = opened.config.archive, opened.config.archive_keep
    places = None if archive is None else noted_places(opened.root, archive)
    if archive is None or places is None or kept_ns >= INT64_MAX:
        return []
    terms = _Terms(places, holds, now_ns - kept_ns)
    base = files.join(archive, path_name(opened.name))
    by_table = [_spent_in(files.join(base, name), terms) for name in files.directories(base)]
    return [spent for spent in by_table if spent.locations]


def delete_copies(spent: SpentCopies, now_ns: int) -> None:
    """Record what is about to be deleted, then delete it; a kill leaves the rest to the next reclaim."""
    before = forgotten(spent.directory)
    manifests = spent.manifests
    record: JsonObject = {
        "manifests": before.get("manifests", 0) + len(manifests),
        "files": before.get("files", 0) + len(spent.paths),
        "until_ns": max(
            [before.get("until_ns", 0), *(each.content.as_of_ns for each in manifests)]
        ),
        "newest": [each.link for each in manifests][-1:] or before.get("newest", []),
        "at_ns": now_ns,
        "initiator": initiator(),
    }
    _write(spent.directory, record | {_DELETING: list(spent.paths)})
    files.delete(manifest.location for manifest in manifests)
    reached(Step.MANIFESTS_DELETED)
    files.delete(spent.copies)
    reached(Step.COPIES_DELETED)
    _write(spent.directory, record | {_DELETING: []})


def _spent_in(directory: str, terms: _Terms) -> SpentCopies:
    manifests = list(read_manifests(directory))
    written = files.times(files.join(directory, "manifests"))
    due = {
        each.location: terms.allow(each, written.get(_name(each), INT64_MAX) * MILLISECOND)
        for each in manifests
    }
    spent = _oldest(manifests, due)
    gone = {manifest.location for manifest in spent}
    replacements = read_replacements(directory)
    kept = (manifest for manifest in manifests if manifest.location not in gone)
    named = _paths(kept, replacements)
    left = set(forgotten(directory).get(_DELETING, ()))
    paths = (_paths(spent, replacements) | left) - named
    return SpentCopies(directory, tuple(spent), tuple(sorted(paths)))


def _oldest(manifests: Sequence[StoredManifest], due: Mapping[str, bool]) -> list[StoredManifest]:
    """The manifests that are due, and whose predecessors all are, each after its predecessor."""
    links = {manifest.link for manifest in manifests if manifest.link is not None}
    followers: dict[str | None, list[StoredManifest]] = defaultdict(list)
    for manifest in manifests:
        before = manifest.content.previous
        followers[before if before in links else None].append(manifest)
    queue, spent = followers[None], list[StoredManifest]()
    for manifest in queue:
        if due[manifest.location]:
            spent.append(manifest)
            queue += followers[manifest.link]
    return spent


def _paths(manifests: Iterable[StoredManifest], replacements: Replacements) -> set[str]:
    """The paths that manifests name, and those of the copies that erasures put in their place."""
    named = (file.path for manifest in manifests for file in manifest.content.files)
    return set().union(*map(replacements.paths, named))


def _name(manifest: StoredManifest) -> str:
    return manifest.location.rpartition("/")[2]


def _place(warehouse: str) -> Place:
    is_remote = files.is_remote(warehouse)
    return Place(warehouse.rstrip("/") if is_remote else os.path.realpath(warehouse), None, "")


def forgotten(directory: str) -> JsonObject:
    """The record of earlier deletions in a table's archive; empty: there is none."""
    location = files.join(directory, _FORGOTTEN)
    content = files.read_bytes(location)
    if content is None:
        return {}
    try:
        return verified(parse_json(content))
    except (ValueError, AttributeError) as error:
        raise DamagedError(
            f"{location}: the record of deleted copies cannot be read ({error}); nothing was deleted; restore it from "
            "a copy, or remove it: copies that a killed reclaim left then stay"
        ) from error


def _write(directory: str, record: JsonObject) -> None:
    content = json.dumps(with_checksum(record)).encode()
    files.replace(files.join(directory, _FORGOTTEN), content)
    reached(Step.COPIES_FORGOTTEN)
