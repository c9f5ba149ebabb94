"""Repair of a warehouse's location: it was moved, or is a copy that is to use the original's archive."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from retention.apply.archive_place import other_place
from retention.context.context import OpenedStream
from retention.context.maintenance import maintaining
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.stores.sidecar.warehouse_place import Place, note_place


@dataclass(frozen=True, repr=False)
class PlaceRepair(Displayed):
    """The location from which a stream is not archived, because another one is recorded for its directory."""

    stream: str
    archive: str | None = None
    """The location of the archive; None: there is nothing to repair."""
    noted: tuple[Place, ...] = ()
    here: Place | None = None
    is_done: bool = False
    """Whether this location is recorded now; False: nothing was changed."""

    @property
    def is_needed(self) -> bool:
        """Whether the stream is a copy that may not be archived yet."""
        return self.here is not None

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return asdict(self)


def find_other_place(opened: OpenedStream) -> PlaceRepair:
    """Find whether a stream is a copy that would write to the original's archive; nothing is changed."""
    other = other_place(opened)
    if other is None:
        return PlaceRepair(opened.name)
    noted, here = other
    return PlaceRepair(opened.name, noted.archive, noted.places, here)


def repair_place(opened: OpenedStream) -> PlaceRepair:
    """Record that a stream is archived from this location too: the warehouse was moved, or a copy shares the archive.

    Raises:
        BusyError: another run is in progress.
    """
    with maintaining(opened):
        repair = find_other_place(opened)
        if repair.archive is None or repair.here is None:
            return repair
        note_place(opened.root, repair.archive, repair.here)
    return PlaceRepair(**vars(repair) | {"is_done": True})
