"""Archives: copies of data files that runs removed, and manifests that name the copies, the rules and the history."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from retention.core.archive_document import ArchiveManifest
from retention.core.documents import judge
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.subjects import path_name
from retention.errors import DamagedError, RefusedError
from retention.storage import files
from retention.storage.checksum import checksum_of, parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached

FORMAT_VERSION = 2
"""Since version 2, a manifest names its predecessor in the table's history."""
KIND = "retention archive"
OF_ERASURE = "erasure-"
"""The beginning of the name of a document beside manifests that says what an erasure replaced."""
_MANIFESTS = "manifests"
_FILES = "messages"
_SUFFIX = ".json"
_LINK = re.compile(r"-([0-9a-f]{16})\.json$")


@dataclass(frozen=True)
class ArchiveOrigin:
    """The origin of an archive's sequences: one table, and one epoch of a topic."""

    stream: str
    table_id: str
    epoch: int = 0

    @property
    def name(self) -> str:
        """The origin's directory in an archive of the stream; no two messages in it share a sequence."""
        return f"{self.table_id}-{self.epoch}"


@dataclass(frozen=True)
class ArchivedFile:
    """One copied data file."""

    path: str
    """The path below `messages/`, as in the source table."""
    partition: int
    segment: int
    file_bytes: int
    sha256: str
    messages: int
    bytes: int
    """Bytes by the broker's accounting; like `messages`, without hidden messages."""
    min_seq: int
    max_seq: int
    min_ts_ns: int
    max_ts_ns: int
    by_rule: Mapping[str, int]
    """The number of the file's messages that the run removed, by rule; it copied the others into another file."""
    hidden: list[list[int]]
    """Ranges of sequences in the file that an earlier build released before, both ends inclusive; now always empty."""

    def data_file(self, directory: str) -> DataFile:
        """The copy, read without the messages that were released earlier."""
        ranges = np.array(self.hidden, dtype=np.int64) if self.hidden else NO_RANGES
        place = place_of(directory, self.path)
        return DataFile(self.path, self.partition, self.segment, place, "", hidden=ranges)


@dataclass(frozen=True)
class Writer:
    """The warehouse that wrote a manifest, for human readers."""

    warehouse: str
    host: str


@dataclass(frozen=True)
class Manifest:
    """The files that one run was about to remove; written after all of them are copied."""

    origin: ArchiveOrigin
    is_topic: bool
    plan_id: str
    as_of_ns: int
    by_rule: Mapping[str, int]
    files: tuple[ArchivedFile, ...]
    previous: str | None = None
    """The link of the newest manifest that a commit of the table named when this one was written; None if none did."""
    writer: Writer | None = None
    """None if an earlier release wrote the manifest."""


@dataclass(frozen=True)
class StoredManifest:
    """A manifest as an archive stores it."""

    content: Manifest
    location: str
    link: str | None
    """The 16 digits by which commits and later manifests name it: 63 bits of its SHA-256.

    None if an earlier release wrote the manifest; nothing names it then.
    """


def link_of(number: int) -> str | None:
    """The link that a table's counter stores as a number; None for 0.

    >>> link_of(255), link_of(0)
    ('00000000000000ff', None)
    """
    return f"{number:016x}" if number else None


def number_of(link: str) -> int:
    """The number by which a table's counter stores a link."""
    return int(link, 16)


def link_in(location: str) -> str | None:
    """The link in the name of a manifest; None if an earlier release named it.

    >>> link_in("kept/ORDERS/t-0/manifests/p-00000000000000ff.json"), link_in("manifests/p.json")
    ('00000000000000ff', None)
    """
    match = _LINK.search(location)
    return None if match is None else match[1]


def directory_of(archive: str, origin: ArchiveOrigin) -> str:
    """The directory of an archive for everything from one origin."""
    return files.join(archive, path_name(origin.stream), origin.name)


def place_of(directory: str, path: str) -> str:
    """The location of a data file's copy."""
    return files.join(directory, _FILES, path)


def write_manifest(directory: str, manifest: Manifest) -> StoredManifest:
    """Write the manifest of copied files, under a name from its content so that it replaces no other history's."""
    fields = asdict(manifest) | {"kind": KIND, "format_version": FORMAT_VERSION}
    link = link_of_fields(fields)
    location = files.join(directory, _MANIFESTS, f"{manifest.plan_id}-{link}{_SUFFIX}")
    content = json.dumps(with_checksum(fields), sort_keys=True, ensure_ascii=False)
    files.replace(location, content.encode())
    reached(Step.ARCHIVE_TOLD)
    return StoredManifest(manifest, location, link)


def has_manifests(directory: str) -> bool:
    """Whether a directory has the layout of `directory_of` and contains an archive."""
    return bool(_names(directory))


def directory_with(manifest: str) -> str | None:
    """The directory of a manifest's location, as `directory_of` names it; None if the text is no such location.

    >>> directory_with("kept/ORDERS/t-0/manifests/p.json"), directory_with("kept/ORDERS")
    ('kept/ORDERS/t-0', None)
    """
    inside, _, name = manifest.rpartition("/")
    is_one = inside.endswith(f"/{_MANIFESTS}") and name.endswith(_SUFFIX)
    return inside.removesuffix(f"/{_MANIFESTS}") if is_one else None


def read_manifests(directory: str) -> Iterator[StoredManifest]:
    """Read the manifests of an archive in name order.

    Raises:
        DamagedError: a manifest cannot be read or does not match its checksum.
        RefusedError: a newer version of the program wrote a manifest.
    """
    return map(read_manifest, manifests_in(directory))


def manifests_in(directory: str) -> list[str]:
    """The locations of the manifests of an archive, in name order."""
    return [files.join(directory, _MANIFESTS, name) for name in _names(directory)]


def manifests_of(directory: str) -> str:
    """The directory of a table's manifests in an archive."""
    return files.join(directory, _MANIFESTS)


def copies_of(directory: str) -> str:
    """The directory of a table's copies in an archive."""
    return files.join(directory, _FILES)


def link_of_fields(fields: Mapping[str, object]) -> str:
    """63 bits of the SHA-256 of a document's fields without its checksum; a counter stores no more."""
    return f"{int(checksum_of(fields)[:16], 16) >> 1:016x}"


def _names(directory: str) -> list[str]:
    names = files.names(manifests_of(directory))
    return [name for name in names if name.endswith(_SUFFIX) and not name.startswith(OF_ERASURE)]


def read_manifest(location: str) -> StoredManifest:
    """Read one manifest; raises as `read_manifests`."""
    try:
        fields = verified(parse_json(files.read_bytes(location) or b""))
        link, version = link_of_fields(fields), _version(fields)
        if version <= FORMAT_VERSION:
            judge(ArchiveManifest, fields)
            return StoredManifest(
                _manifest(fields), location, None if version == 1 else _as_named(location, link)
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{location}: this manifest of an archive cannot be read ({error}); nothing was changed; restore it "
            "from a copy, or leave it out to do without what it names"
        ) from error
    raise RefusedError(
        f"{location}: written in archive format {version}, this program knows formats up to {FORMAT_VERSION}; "
        "nothing was changed; use a newer release"
    )


def _as_named(location: str, link: str) -> str:
    if link_in(location) != link:
        raise ValueError("its name is that of another content")
    return link


def _version(fields: dict[str, object]) -> int:
    """Remove kind and format version from a manifest's fields, and return the version."""
    kind, version = fields.pop("kind"), fields.pop("format_version")
    if kind != KIND or type(version) is not int:
        raise ValueError("it is none")
    return version


def _manifest(fields: dict[str, Any]) -> Manifest:
    origin = ArchiveOrigin(**fields.pop("origin"))
    copies = tuple(ArchivedFile(**copy) for copy in fields.pop("files"))
    writer = fields.pop("writer", None)
    return Manifest(
        origin=origin, files=copies, writer=None if writer is None else Writer(**writer), **fields
    )
