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
    """Which sequences an archive holds: those of one table, and of one epoch of a topic."""

    stream: str
    table_id: str
    epoch: int = 0

    @property
    def name(self) -> str:
        """The directory of it in an archive of the stream: no sequence means two messages there."""
        return f"{self.table_id}-{self.epoch}"


@dataclass(frozen=True)
class ArchivedFile:
    """One copy."""

    path: str
    """Below `messages/`, as in the table that it comes from."""
    partition: int
    segment: int
    file_bytes: int
    sha256: str
    messages: int
    bytes: int
    """By the broker's accounting, as `messages` without what is hidden."""
    min_seq: int
    max_seq: int
    min_ts_ns: int
    max_ts_ns: int
    by_rule: Mapping[str, int]
    """How many messages of it the run removed, by rule; the others went into a copy."""
    hidden: list[list[int]]
    """Ranges of sequences in it that were released before, both ends inclusive."""

    def data_file(self, directory: str) -> DataFile:
        """The copy, to be read without what was released before."""
        ranges = np.array(self.hidden, dtype=np.int64) if self.hidden else NO_RANGES
        place = place_of(directory, self.path)
        return DataFile(self.path, self.partition, self.segment, place, "", hidden=ranges)


@dataclass(frozen=True)
class Manifest:
    """What one run was about to remove; it is written when all of it is copied."""

    origin: Origin
    is_topic: bool
    plan_id: str
    as_of_ns: int
    by_rule: Mapping[str, int]
    files: tuple[ArchivedFile, ...]


def directory_of(archive: str, origin: Origin) -> str:
    """Where an archive keeps what comes from one table."""
    return files.join(archive, path_name(origin.stream), origin.name)


def place_of(directory: str, path: str) -> str:
    """Where the copy of a data file lies."""
    return files.join(directory, _FILES, path)


def write_manifest(directory: str, manifest: Manifest) -> str:
    """Say what was copied; where that is written."""
    said = asdict(manifest) | {"kind": KIND, "format_version": FORMAT_VERSION}
    location = files.join(directory, _MANIFESTS, f"{manifest.plan_id}.json")
    content = json.dumps(with_checksum(said), sort_keys=True, ensure_ascii=False)
    files.replace(location, content.encode())
    reached(Step.ARCHIVE_TOLD)
    return location


def has_manifests(directory: str) -> bool:
    """Whether a directory is what `directory_of` names, with an archive in it."""
    return bool(files.names(files.join(directory, _MANIFESTS)))


def read_manifests(directory: str) -> Iterator[Manifest]:
    """What the manifests of an archive say.

    Raises:
        DamagedError: one cannot be read, or is not what was written.
        RefusedError: a newer version of the program wrote it.
    """
    for name in files.names(files.join(directory, _MANIFESTS)):
        location = files.join(directory, _MANIFESTS, name)
        try:
            said = verified(parse_json(files.read_bytes(location) or b""))
            version = _version(said)
            if version <= FORMAT_VERSION:
                judge(ArchiveManifest, said)
                yield _manifest(said)
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


def _version(said: dict[str, Any]) -> int:
    """The format of what is a manifest; what says so is taken out of it."""
    kind, version = said.pop("kind"), said.pop("format_version")
    if kind != KIND or type(version) is not int:
        raise ValueError("it is none")
    return version


def _manifest(said: dict[str, Any]) -> Manifest:
    origin = Origin(**said.pop("origin"))
    copies = tuple(ArchivedFile(**one) for one in said.pop("files"))
    return Manifest(origin=origin, files=copies, **said)
