"""The check that a warehouse archives from its own location, so that no copy writes to the original's archive."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.errors import RefusedError
from retention.stores.sidecar.warehouse_place import (
    NotedPlaces,
    Place,
    note_place,
    noted_places,
    place_of_stream,
)


def note_first_place(opened: OpenedStream) -> None:
    """Record the location of a stream that has an archive, unless one is recorded; copies are recognized by it."""
    archive = opened.config.archive
    if archive is not None and noted_places(opened.root, archive) is None:
        note_place(opened.root, archive, place_of_stream(opened.root, opened.warehouse))


def check_place(opened: OpenedStream) -> None:
    """Refuse to archive from a copy of a warehouse to the archive of the original.

    Raises:
        RefusedError: the stream's directory is not at the recorded location, and is not the same directory.
    """
    other = other_place(opened)
    if other is not None:
        noted, here = other
        was = noted.places[-1]
        raise RefusedError(
            f"{opened.name}: the warehouse at {here.warehouse} is a copy of {was.warehouse} (host {was.host}), or was "
            f"moved from there, and its archive is that one's, {noted.archive}; nothing was removed; give a copy an "
            "`archive:` of its own, or say that this place may write there, too, with "
            f"{command('repair place', opened.name, options='--yes')}"
        )
    note_first_place(opened)


def other_place(opened: OpenedStream) -> tuple[NotedPlaces, Place] | None:
    """The recorded locations of a stream's directory and its present one, if it is a copy; None: it is not."""
    archive = opened.config.archive
    noted = None if archive is None else noted_places(opened.root, archive)
    if noted is None:
        return None
    here = place_of_stream(opened.root, opened.warehouse)
    return None if noted.has(here) else (noted, here)
