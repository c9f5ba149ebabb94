"""The identity of a configuration: streams belong to the one that listed them last."""

from __future__ import annotations

import os
from dataclasses import dataclass

from retention.storage import places


@dataclass(frozen=True)
class Owner:
    """A configuration that owns streams."""

    name: str | None
    """The `owner` that its file says: the same one wherever the file lies; None: its place tells it from others."""
    file: str
    """The location of its file, symbolic links not followed."""
    host: str | None
    """The machine with that file; None on an object store."""

    def is_same(self, other: Owner) -> bool:
        """Whether two of them are one configuration: by their names, if both have one, else by their places."""
        if self.name is not None and other.name is not None:
            return self.name == other.name
        return (self.file, self.host) == (other.file, other.host)

    def __str__(self) -> str:
        place = self.file if self.host is None else f"{self.file} on {self.host}"
        return place if self.name is None else f"{self.name} ({place})"


def owner_of(file: str, name: str | None) -> Owner:
    """The owner that the configuration in a file is.

    Args:
        file: its location; a local one may be relative to the working directory.
        name: its `owner`, if it says one.
    """
    place = places.place_of(file)
    if place.startswith(places.S3):
        return Owner(name, place, None)
    return Owner(name, os.path.abspath(place), os.uname().nodename)  # noqa: PTH100  (links stay: they outlive what they lead to)
