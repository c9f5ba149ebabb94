"""The check that a warehouse archives from its own location, so that no copy writes to the original's archive."""

from __future__ import annotations

import logging
from functools import lru_cache

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

_log = logging.getLogger(__name__)


def note_place_or_warn(opened: OpenedStream) -> None:
    """Record the location of a stream that has an archive, unless one is recorded; copies are recognized by it.

    A copy is warned, once in a process: it may be written to, but its runs may not write to the original's archive.
    """
    other = _note_first_place(opened)
    if other is not None:
        _warn_once(
            f"{opened.name}: {place_phrase(*other)}; messages are added, and nothing is removed until you "
            f"{_place_remedy(opened.name)}"
        )


def check_place(opened: OpenedStream) -> None:
    """Refuse to archive from a copy of a warehouse to the archive of the original.

    Raises:
        RefusedError: the stream's directory is not at the recorded location, and is not the same directory.
    """
    other = _note_first_place(opened)
    if other is not None:
        raise RefusedError(
            f"{opened.name}: {place_phrase(*other)}; nothing was removed; {_place_remedy(opened.name)}"
        )


def place_phrase(noted: NotedPlaces, here: Place) -> str:
    """The phrase that names a copy, its original and the archive of both."""
    was = noted.places[-1]
    return (
        f"the warehouse at {here.warehouse} is a copy of {was.warehouse} (host {was.host}), or was moved from there, "
        f"and its archive is that one's, {noted.archive}"
    )


def other_place(opened: OpenedStream) -> tuple[NotedPlaces, Place] | None:
    """The recorded locations of a stream's directory and its present one, if it is a copy; None: it is not."""
    archive = opened.config.archive
    noted = None if archive is None else noted_places(opened.root, archive)
    return None if noted is None else _compared(noted, _place(opened))


def _note_first_place(opened: OpenedStream) -> tuple[NotedPlaces, Place] | None:
    """Record the location of a stream that has an archive, unless one is recorded; returns `other_place`."""
    archive = opened.config.archive
    if archive is None:
        return None
    noted, here = noted_places(opened.root, archive), _place(opened)
    if noted is not None:
        return _compared(noted, here)
    note_place(opened.root, archive, here)
    return None


def _place(opened: OpenedStream) -> Place:
    return place_of_stream(opened.root, opened.warehouse)


def _compared(noted: NotedPlaces, here: Place) -> tuple[NotedPlaces, Place] | None:
    return None if noted.has(here) else (noted, here)


def _place_remedy(name: str) -> str:
    return (
        "give a copy an `archive:` of its own, or say that this place may write there, too, with "
        f"{command('repair place', name, options='--yes')}"
    )


@lru_cache(maxsize=1024)
def _warn_once(sentence: str) -> None:
    _log.warning("%s", sentence)
