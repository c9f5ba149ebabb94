"""The outcome of a sync: what was copied, what was missed, and how far the stream is from its server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.ingest.sync.missed import NONE_MISSED, Missed

Ended = Literal["end", "signal", "sealed"]
"""The reason why a run ended: it reached the server's end, a signal asked it to, or the server's stream is sealed."""


@dataclass(frozen=True, repr=False)
class Synced(Displayed):
    """The messages that a run copied to one stream."""

    stream: str
    origin: str
    """The stream's name on the server."""
    created: str
    """The creation time of the server's stream, as the server writes it; its identity."""
    messages: int
    bytes: int
    """The size of the messages, by the broker's accounting."""
    commits: int
    position: int
    """The last sequence of the server that was read."""
    last_seq: int
    """The server's last sequence when the run ended."""
    missed: Missed = NONE_MISSED
    is_restored: bool = False
    """Whether the server's stream was restored since the run before."""
    ended: Ended = "end"
    notes: Sequence[str] = ()
    """Sentences about the server's configuration and consumers."""

    @property
    def behind(self) -> int:
        """The number of sequences of the server that were not read when the run ended."""
        return max(self.last_seq - self.position, 0)

    def as_json(self) -> JsonObject:
        """The numbers as JSON values."""
        ranges = [vars(each).copy() for each in self.missed.ranges]
        return {
            **{name: getattr(self, name) for name in _NAMES},
            "behind": self.behind,
            "missed": self.missed.count,
            "missed_ranges": ranges,
            "restored": self.is_restored,
            "ended": self.ended,
            "notes": list(self.notes),
        }


_NAMES = ("stream", "origin", "created", "messages", "bytes", "commits", "position", "last_seq")
