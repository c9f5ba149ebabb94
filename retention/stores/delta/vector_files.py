"""File actions with deletion vectors: the path of a file under its vector, and the statistics of the rows it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from retention.core.vector_paths import VectorPlace, under_vector, vector_place
from retention.delta.vectors import describe_stored, stored_place
from retention.stores.layout import Layout

_BOUNDS = ("minValues", "maxValues", "nullCount")


def path_of(fields: Mapping[str, Any]) -> str | None:
    """The path of an action's file, with the place of its vector; None if its vector has no path of its own.

    Vectors within the log, or outside the table's directory, have none: only Spark can read files under them.
    """
    path, vector = unquote(fields["path"]), fields.get("deletionVector")
    if vector is None:
        return path
    place = stored_place(vector)
    return None if place is None else under_vector(path, VectorPlace(*place))


def named_path(fields: Mapping[str, Any]) -> str:
    """The path of an action's file as by `path_of`; without its vector if that has no path of its own."""
    return path_of(fields) or unquote(fields["path"])


def statistics(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of the rows that an `add` leaves: bounds of hidden rows, too, say nothing about the others."""
    known = json.loads(fields.get("stats") or "{}")
    vector = fields.get("deletionVector")
    if vector is None:
        return dict(known)
    if known.get("tightBounds") is False:
        known = {name: value for name, value in known.items() if name not in _BOUNDS}
    if known.get("numRecords") is not None:
        known["numRecords"] -= vector["cardinality"]
    return dict(known)


def vector_of(layout: Layout, path: str) -> dict[str, Any] | None:
    """The descriptor of the vector that a path names, read back from its file; None without one.

    Raises:
        DamagedError: the vector is missing or damaged.
    """
    place = vector_place(path)
    return (
        None
        if place is None
        else describe_stored(layout.live(place.path), place.file, place.offset)
    )
