"""Who has read how far in a topic, and how much is still to come for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from retention.opened import OpenedStream
from retention.passes.offsets import offsets_of, stored_offset
from retention.stores.offsets import Reader, StoredOffset


@dataclass(frozen=True)
class OffsetInfo:
    """A stored offset as people and programs read it."""

    stream: str
    """The topic, by the name that commands take."""
    partition: int
    kind: str
    name: str
    """The number by which Iggy knows who reads, in decimal."""
    offset: int
    stored_ns: int
    """Nanoseconds since the epoch."""
    lag: int
    """How many offsets of the partition follow."""

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return dict(vars(self))


def offset_info(opened: OpenedStream, reader: Reader) -> OffsetInfo:
    """One stored offset.

    Raises:
        UsageError, DamagedError: as `stored_offset`.
    """
    return _info(opened, _ends(opened), reader, stored_offset(opened, reader))


def offset_infos(opened: OpenedStream) -> list[OffsetInfo]:
    """All stored offsets, by partition, then consumers before groups.

    Raises:
        UsageError: it is no topic.
        DamagedError: they cannot be read.
    """
    stored, ends = offsets_of(opened).of, _ends(opened)
    return [_info(opened, ends, reader, one) for reader, one in sorted(stored.items())]


def _info(
    opened: OpenedStream, ends: dict[int, int], reader: Reader, stored: StoredOffset
) -> OffsetInfo:
    lag = max(ends.get(reader.partition, 0) - 1 - stored.offset, 0)
    return OffsetInfo(opened.name, **vars(reader), **vars(stored), lag=lag)


def _ends(opened: OpenedStream) -> dict[int, int]:
    """Partition → its next offset."""
    if not opened.store.exists():
        return {}
    return dict(opened.store.snapshot().counters.next_seq)
