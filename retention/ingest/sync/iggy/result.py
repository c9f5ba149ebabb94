"""The outcome of a sync of a topic: what was copied, what was missed, and how far each partition is from its server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.ingest.sync.iggy.reading import PartitionMissed
from retention.ingest.sync.result import Ended

_NAMES = ("stream", "origin", "created", "messages", "bytes", "commits", "behind", "ended")


@dataclass(frozen=True)
class PartitionSynced:
    """The position of one partition, and its end on the server."""

    partition: int
    next_offset: int
    """The first offset that was not read."""
    end: int
    """The offset after the server's last message when the run ended."""


@dataclass(frozen=True, repr=False)
class TopicSynced(Displayed):
    """The messages that a run copied to one topic."""

    stream: str
    """The topic here."""
    origin: str
    """Stream and topic on the server, `stream/topic`."""
    created: str
    """The time of the creation of the server's topic, microseconds since the epoch."""
    messages: int
    bytes: int
    """The size of the messages, by the broker's accounting."""
    commits: int
    partitions: Sequence[PartitionSynced] = ()
    missed: Sequence[PartitionMissed] = ()
    ended: Ended = "end"
    notes: Sequence[str] = ()
    """Sentences about partitions and the server's configuration."""

    @property
    def behind(self) -> int:
        """The number of offsets of the server that were not read when the run ended."""
        return sum(max(each.end - each.next_offset, 0) for each in self.partitions)

    @property
    def missed_count(self) -> int:
        """The number of missed offsets."""
        return sum(each.count for each in self.missed)

    def as_json(self) -> JsonObject:
        """The numbers as JSON values; `position` and `last_seq` are those of streams, which have one partition."""
        ranges = [vars(each) | {"count": each.count} for each in self.missed]
        return {
            **{name: getattr(self, name) for name in _NAMES},
            "position": None,
            "last_seq": None,
            "partitions": [dict(vars(each)) for each in self.partitions],
            "missed": self.missed_count,
            "missed_ranges": ranges,
            "restored": False,
            "notes": list(self.notes),
        }
