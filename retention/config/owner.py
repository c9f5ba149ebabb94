"""The identity of a configuration: streams belong to the one that listed them last."""

from __future__ import annotations

import os
from dataclasses import dataclass

from retention.storage import places


@dataclass(frozen=True)
class Owner:
    """A configuration that owns streams."""

    name: str | None
    """The `owner` named in its file, independent of the file's location; None: its location identifies it."""
    file: str
    """The location of its file, with symbolic links not resolved."""
    host: str | None
    """The machine with that file; None on an object store."""

    def is_same(self, other: Owner) -> bool:
        """Whether both are one configuration: by name, if both have one, otherwise by location."""
        if self.name is not None and other.name is not None:
            return self.name == other.name
        return (self.file, self.host) == (other.file, other.host)

    def __str__(self) -> str:
        place = self.file if self.host is None else f"{self.file} on {self.host}"
        return place if self.name is None else f"{self.name} ({place})"


def owner_of(file: str, name: str | None) -> Owner:
    """The owner for the configuration in a file.

    Args:
        file: its location; a local one may be relative to the working directory.
        name: its `owner`, if it has one.
    """
    place = places.place_of(file)
    if place.startswith(places.S3):
        return Owner(name, place, None)
    return Owner(name, os.path.abspath(place), os.uname().nodename)  # noqa: PTH100  (links are not resolved: they outlive their targets)
