"""The place of the warehouse that archives a stream; it distinguishes the warehouse from a copy of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from retention.storage import files
from retention.storage.crash_points import Step
from retention.storage.errors import as_storage_errors
from retention.storage.sidecar import JsonCodec, Sidecar


@dataclass(frozen=True)
class Place:
    """A place of a stream's directory."""

    warehouse: str
    """The prefix on an object store, or the path without symbolic links."""
    inode: int | None
    """The inode of the stream's directory; None on an object store.

    It is the same at every mount of one file system, on any host, and after a rename; a copy has another.
    """
    host: str
    """The host, only for human readers: a place is the same on every host."""

    def is_of(self, other: Place) -> bool:
        """Whether both places can be those of one directory."""
        if self.warehouse == other.warehouse:
            return True
        return self.inode is not None and self.inode == other.inode


@dataclass(frozen=True)
class NotedPlaces:
    """The places of a stream's directory from which an archive was written."""

    archive: str
    """The location of the archive."""
    places: tuple[Place, ...]
    """The places; more than one if an operator confirmed another place of the same warehouse."""

    def has(self, here: Place) -> bool:
        """Whether a place is one of these."""
        return any(here.is_of(place) for place in self.places)


def place_of_stream(root: str, warehouse: str) -> Place:
    """The current place of a stream's directory.

    Args:
        root: the stream's directory, which exists.
        warehouse: the warehouse of the stream.
    """
    host = os.uname().nodename
    if files.is_remote(root):
        return Place(warehouse.rstrip("/"), None, host)
    with as_storage_errors(root):
        return Place(os.path.realpath(warehouse), Path(root).stat().st_ino, host)


def noted_places(root: str, archive: str) -> NotedPlaces | None:
    """The places from which a stream was archived; None if never, to another archive only, or unknown."""
    record = _sidecar(root).latest()
    if record is None or record.value.archive != _location(archive):
        return None
    return record.value


def note_place(root: str, archive: str, here: Place) -> None:
    """Note a place from which a stream is archived, in addition to the noted places of the same archive."""
    noted = noted_places(root, archive) or NotedPlaces(_location(archive), ())
    _sidecar(root).save(replace(noted, places=(*noted.places, here)))


def _location(archive: str) -> str:
    return archive.rstrip("/") if files.is_remote(archive) else os.path.realpath(archive)


def _sidecar(root: str) -> Sidecar[NotedPlaces]:
    place = files.join(root, "_retention", "place.json")
    return Sidecar(place, JsonCodec(asdict, _from_json), Step.PLACE_NOTED)


def _from_json(_: object, fields: Mapping[str, Any]) -> NotedPlaces:
    places = tuple(
        Place(str(place["warehouse"]), place["inode"], str(place["host"]))
        for place in fields["places"]
    )
    if not places:
        raise ValueError("there is none")
    return NotedPlaces(str(fields["archive"]), places)
