"""The owner of a stream: the configuration that last listed it, recorded beside its table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from retention.config.owner import Owner
from retention.core.units import DAY
from retention.errors import StorageError
from retention.storage import files
from retention.storage.crash_points import Step
from retention.storage.sidecar import JsonCodec, Sidecar

CONFIRMED_NS = 7 * DAY
"""The age at which a record of the same owner is rewritten; a nightly run does not rewrite it."""
FORGOTTEN_NS = 35 * DAY
"""The age at which a record no longer names an owner; it exceeds the period of a monthly schedule."""


@dataclass(frozen=True)
class Listing:
    """The last listing of the stream by a configuration."""

    owner: Owner
    listed_ns: int
    """The wall clock, nanoseconds since the epoch."""

    def age_ns(self, now_ns: int) -> int:
        """The time since then, nanoseconds; a clock ahead counts as much as one behind."""
        return abs(now_ns - self.listed_ns)


def other_owner(root: str, current: Owner | None, now_ns: int) -> Owner | None:
    """The owner of the stream below `root` if it is another configuration; None if it is `current` or unowned.

    A configuration stops being the owner if its last listing is old, or if its file was deleted from this machine: a
    moved file does not keep its streams.
    """
    listing = _read(root)
    if listing is None or listing.age_ns(now_ns) > FORGOTTEN_NS:
        return None
    owner = listing.owner
    if (current is not None and owner.is_same(current)) or _is_gone(owner):
        return None
    return owner


def note_listing(root: str, current: Owner, now_ns: int) -> None:
    """Record that a configuration lists the stream below `root`; an unchanged record is rewritten once a week.

    A failed write stops no run, and none is fsynced: without a record, the stream is reported as unowned.
    """
    listing = _read(root)
    if listing is None or listing.owner != current or listing.age_ns(now_ns) > CONFIRMED_NS:
        _sidecar(root).save_unsynced(Listing(current, now_ns))


def _is_gone(owner: Owner) -> bool:
    """Whether the file of an unnamed owner is known to be deleted."""
    if owner.name is not None or owner.host not in (None, os.uname().nodename):
        return False
    try:
        return files.length(owner.file) is None
    except StorageError:
        return False


def _read(root: str) -> Listing | None:
    record = _sidecar(root).latest()
    return None if record is None else record.value


def _sidecar(root: str) -> Sidecar[Listing]:
    place = files.join(root, "_retention", "owner.json")
    return Sidecar(place, JsonCodec(asdict, _from_json), Step.OWNER_NOTED)


def _from_json(_: object, fields: Mapping[str, Any]) -> Listing:
    owner = fields["owner"]
    return Listing(
        Owner(owner["name"], str(owner["file"]), owner["host"]), int(fields["listed_ns"])
    )
