"""Erasures in an archive: documents beside its manifests that replace copies by copies without the erased rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from retention.core.archive_document import ArchiveErasureDocument
from retention.core.documents import judge
from retention.errors import DamagedError, RefusedError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.stores.archive_manifest import (
    KIND,
    OF_ERASURE,
    ArchivedFile,
    ArchiveOrigin,
    link_in,
    link_of_fields,
    manifests_of,
)

FORMAT_VERSION = 3
"""Releases that know only manifests, up to version 2, refuse an archive with such a document."""
_SUFFIX = ".json"


@dataclass(frozen=True)
class ReplacedCopy:
    """A copy that had erased rows."""

    path: str
    """The path below `messages/` that a manifest, or an earlier erasure, names."""
    sha256: str
    by: ArchivedFile | None
    """The copy without the rows; None: no row was left."""


@dataclass(frozen=True)
class ArchiveErasure:
    """The copies of one table that an erasure replaced in one pass; written before they are deleted."""

    erasure: str
    origin: ArchiveOrigin
    at_ns: int
    """The wall clock, nanoseconds since the epoch."""
    after: tuple[str, ...]
    """The links of the documents in this directory that no other one names, ascending."""
    replaced: tuple[ReplacedCopy, ...]


@dataclass(frozen=True)
class StoredErasure:
    """A document of an erasure as an archive stores it."""

    content: ArchiveErasure
    location: str
    link: str
    """63 bits of its SHA-256, by which later documents name it."""


@dataclass(frozen=True)
class Replacements:
    """All copies that erasures replaced in the archive of one table."""

    stored: Sequence[StoredErasure] = ()

    @cached_property
    def _by_path(self) -> Mapping[str, list[ReplacedCopy]]:
        by_path: dict[str, list[ReplacedCopy]] = {}
        for document in self.stored:
            for copy in document.content.replaced:
                by_path.setdefault(copy.path, []).append(copy)
        return by_path

    def has(self, path: str) -> bool:
        """Whether an erasure replaced a copy."""
        return path in self._by_path

    def last(self, copy: ArchivedFile) -> list[ArchivedFile]:
        """The copies that stand for one that a manifest names: itself, or what erasures left of it.

        Raises:
            DamagedError: an erasure replaced a copy of this path with other bytes.
        """
        if copy.path not in self._by_path:
            return [copy]
        copies: dict[str, ArchivedFile] = {}
        for replaced in self._by_path[copy.path]:
            if replaced.sha256 != copy.sha256:
                raise DamagedError(
                    f"{copy.path}: a manifest of the archive and an erasure name different bytes for this copy; "
                    "nothing was changed; restore both from a copy of the archive"
                )
            if replaced.by is not None:
                copies |= {each.path: each for each in self.last(replaced.by)}
        return list(copies.values())

    def paths(self, path: str) -> set[str]:
        """A path, and those of all copies that replaced it, one after the other."""
        copies = {path}
        for replaced in self._by_path.get(path, ()):
            if replaced.by is not None:
                copies |= self.paths(replaced.by.path)
        return copies

    @property
    def ends(self) -> tuple[str, ...]:
        """The links of the documents that no other one names, ascending."""
        followed = {link for document in self.stored for link in document.content.after}
        return tuple(sorted({document.link for document in self.stored} - followed))

    @property
    def missing(self) -> list[str]:
        """The links that a document names and that no document has, ascending."""
        known = {document.link for document in self.stored}
        return sorted({link for each in self.stored for link in each.content.after} - known)

    def of(self, erasure: str) -> Iterator[StoredErasure]:
        """The documents of one erasure."""
        return (document for document in self.stored if document.content.erasure == erasure)


def read_replacements(directory: str) -> Replacements:
    """The erasures in the archive of one table.

    Raises:
        DamagedError: a document cannot be read, or does not match its checksum or its name.
        RefusedError: a newer version of the program wrote one.
    """
    return Replacements(list(map(read_erasure, erasures_in(directory))))


def erasures_in(directory: str) -> list[str]:
    """The locations of the documents of erasures in the archive of one table, in name order."""
    names = files.names(manifests_of(directory))
    ours = (name for name in names if name.startswith(OF_ERASURE) and name.endswith(_SUFFIX))
    return [files.join(manifests_of(directory), name) for name in ours]


def write_erasure(directory: str, content: ArchiveErasure) -> StoredErasure:
    """Write the document of an erasure, under a name from its content."""
    fields = asdict(content) | {"kind": KIND, "format_version": FORMAT_VERSION}
    link = link_of_fields(fields)
    name = f"{OF_ERASURE}{content.erasure}-{link}{_SUFFIX}"
    location = files.join(manifests_of(directory), name)
    files.replace(location, json.dumps(with_checksum(fields), sort_keys=True).encode())
    reached(Step.ARCHIVE_ERASURE_TOLD)
    return StoredErasure(content, location, link)


def erasure_in(location: str) -> str | None:
    """The link in the location of an erasure's document; None if the location is that of another file."""
    name = location.rpartition("/")[2]
    return link_in(location) if name.startswith(OF_ERASURE) else None


def read_erasure(location: str) -> StoredErasure:
    """Read one document; raises as `read_replacements`."""
    try:
        fields = verified(parse_json(files.read_bytes(location) or b""))
        link, version = link_of_fields(fields), fields.pop("format_version")
        _check_identity(location, fields.pop("kind"), version, link)
        if version <= FORMAT_VERSION:
            judge(ArchiveErasureDocument, fields)
            return StoredErasure(_content(fields), location, link)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{location}: this record of an erasure in an archive cannot be read ({error}); nothing was changed; "
            "restore it from a copy of the archive"
        ) from error
    raise RefusedError(
        f"{location}: written in archive format {version}, this program knows formats up to {FORMAT_VERSION}; "
        "nothing was changed; use a newer release"
    )


def _check_identity(location: str, kind: object, version: object, link: str) -> None:
    if kind != KIND or type(version) is not int:
        raise ValueError("it is none")
    if link_in(location) != link:
        raise ValueError("its name is that of another content")


def _content(fields: dict[str, Any]) -> ArchiveErasure:
    return ArchiveErasure(
        fields["erasure"],
        ArchiveOrigin(**fields["origin"]),
        fields["at_ns"],
        tuple(fields["after"]),
        tuple(_replaced(fields["replaced"])),
    )


def _replaced(rows: Iterable[Mapping[str, Any]]) -> Iterator[ReplacedCopy]:
    for row in rows:
        by = None if row["by"] is None else ArchivedFile(**row["by"])
        yield ReplacedCopy(row["path"], row["sha256"], by)
