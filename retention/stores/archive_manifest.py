"""Archives: copies of data files that runs removed, and manifests which say what was copied, and by which rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from retention.core.documents import ArchiveManifest, judge
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.subjects import path_name
from retention.errors import DamagedError, RefusedError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached

FORMAT_VERSION = 1
KIND = "retention archive"
_MANIFESTS = "manifests"
_FILES = "messages"


@dataclass(frozen=True)
class Origin:
    """The origin of an archive's sequences: one table, and one epoch of a topic."""

    stream: str
    table_id: str
    epoch: int = 0

    @property
    def name(self) -> str:
        """The origin's directory in an archive of the stream: no sequence means two messages there."""
        return f"{self.table_id}-{self.epoch}"


@dataclass(frozen=True)
class ArchivedFile:
    """One copied data file."""

    path: str
    """The path below `messages/`, as in the table that the file comes from."""
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
    """The number of the file's messages that the run removed, by rule; the others went into a copy."""
    hidden: list[list[int]]
    """Ranges of sequences in the file that were released before, both ends inclusive."""

    def data_file(self, directory: str) -> DataFile:
        """The copy, to be read without the messages that were released before."""
        ranges = np.array(self.hidden, dtype=np.int64) if self.hidden else NO_RANGES
        place = place_of(directory, self.path)
        return DataFile(self.path, self.partition, self.segment, place, "", hidden=ranges)


@dataclass(frozen=True)
class Manifest:
    """The files that one run was about to remove, written when all of them are copied."""

    origin: Origin
    is_topic: bool
    plan_id: str
    as_of_ns: int
    by_rule: Mapping[str, int]
    files: tuple[ArchivedFile, ...]


def directory_of(archive: str, origin: Origin) -> str:
    """The directory in which an archive keeps all that comes from one table."""
    return files.join(archive, path_name(origin.stream), origin.name)


def place_of(directory: str, path: str) -> str:
    """The place of a data file's copy."""
    return files.join(directory, _FILES, path)


def write_manifest(directory: str, manifest: Manifest) -> str:
    """Write which files were copied; return where that is written."""
    fields = asdict(manifest) | {"kind": KIND, "format_version": FORMAT_VERSION}
    location = files.join(directory, _MANIFESTS, f"{manifest.plan_id}.json")
    content = json.dumps(with_checksum(fields), sort_keys=True, ensure_ascii=False)
    files.replace(location, content.encode())
    reached(Step.ARCHIVE_TOLD)
    return location


def has_manifests(directory: str) -> bool:
    """Whether a directory is what `directory_of` names, with an archive in it."""
    return bool(files.names(files.join(directory, _MANIFESTS)))


def read_manifests(directory: str) -> Iterator[Manifest]:
    """Read the manifests of an archive.

    Raises:
        DamagedError: a manifest cannot be read, or is not what was written.
        RefusedError: a newer version of the program wrote a manifest.
    """
    for name in files.names(files.join(directory, _MANIFESTS)):
        location = files.join(directory, _MANIFESTS, name)
        try:
            fields = verified(parse_json(files.read_bytes(location) or b""))
            version = _version(fields)
            if version <= FORMAT_VERSION:
                judge(ArchiveManifest, fields)
                yield _manifest(fields)
                continue
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(
                f"{location}: this manifest of an archive cannot be read ({error}); nothing was changed; restore it "
                "from a copy, or leave it out to do without what it names"
            ) from error
        raise RefusedError(
            f"{location}: written in archive format {version}, this program knows formats up to {FORMAT_VERSION}; "
            "nothing was changed; use a newer release"
        )


def _version(fields: dict[str, Any]) -> int:
    """Take kind and format version out of a manifest's fields; the version."""
    kind, version = fields.pop("kind"), fields.pop("format_version")
    if kind != KIND or type(version) is not int:
        raise ValueError("it is none")
    return version


def _manifest(fields: dict[str, Any]) -> Manifest:
    origin = Origin(**fields.pop("origin"))
    copies = tuple(ArchivedFile(**copy) for copy in fields.pop("files"))
    return Manifest(origin=origin, files=copies, **fields)
