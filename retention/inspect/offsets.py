"""Stored offsets of a topic: how far each reader has read, and how much is left for it."""

from __future__ import annotations

from dataclasses import dataclass

from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.interest.commit_offsets import offsets_of, stored_offset
from retention.stores.offset_table import Reader, StoredOffset


@dataclass(frozen=True)
class OffsetInfo(Displayed):
    """A stored offset as users and programs read it."""

    stream: str
    """The topic, by its name in commands."""
    partition: int
    kind: str
    name: str
    """The number by which Iggy identifies the reader, in decimal."""
    offset: int
    stored_ns: int
    """Nanoseconds since the epoch."""
    lag: int
    """Number of the partition's offsets after it."""

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return dict(vars(self))


def offset_info(opened: OpenedStream, reader: Reader) -> OffsetInfo:
    """One stored offset.

    Raises:
        UsageError, DamagedError: as `stored_offset`.
    """
    stored, counters = stored_offset(opened, reader)
    return info_of(opened.name, counters, reader, stored)


def offset_infos(opened: OpenedStream) -> list[OffsetInfo]:
    """All stored offsets, by partition, then consumers before groups.

    Raises:
        UsageError: it is not a topic.
        DamagedError: they cannot be read.
    """
    offsets, counters = offsets_of(opened)
    return [
        info_of(opened.name, counters, reader, stored)
        for reader, stored in sorted(offsets.of.items())
    ]


def info_of(topic: str, counters: Counters, reader: Reader, stored: StoredOffset) -> OffsetInfo:
    """A stored offset compared with the end of its partition."""
    lag = max(counters.next_seq.get(reader.partition, 0) - 1 - stored.offset, 0)
    return OffsetInfo(topic, **vars(reader), **vars(stored), lag=lag)
