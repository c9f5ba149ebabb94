"""Model of the legal holds of a stream: which messages each covers, and which of them are in effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.support.histories.stored import Stored, matches


@dataclass(frozen=True)
class Held:
    """A legal hold in effect."""

    id: str
    subject: str | None = None
    ranges: tuple[tuple[int, int], ...] | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    until_ns: int | None = None

    def covers(self, message: Stored) -> bool:
        """Whether a message matches all fields."""
        return (
            (self.subject is None or matches(self.subject, message.subject))
            and (self.ranges is None or any(a <= message.seq <= b for a, b in self.ranges))
            and (self.from_ns is None or message.ts_ns >= self.from_ns)
            and (self.to_ns is None or message.ts_ns < self.to_ns)
        )


@dataclass
class HoldModel:
    """The legal holds of a stream."""

    in_effect: dict[str, Held] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def cover(self, message: Stored) -> bool:
        """Whether one of them covers a message."""
        return any(hold.covers(message) for hold in self.in_effect.values())

    def end(self, hold_id: str) -> None:
        """End one of them."""
        del self.in_effect[hold_id]
        self.ended.add(hold_id)

    def due(self, now_ns: int) -> list[str]:
        """The ids of those whose time is over, which the next run that removes ends."""
        holds = self.in_effect.values()
        return sorted(h.id for h in holds if h.until_ns is not None and h.until_ns <= now_ns)

    def expire(self, now_ns: int) -> list[str]:
        """End those whose time is over; returns their ids."""
        ids = self.due(now_ns)
        for hold_id in ids:
            self.end(hold_id)
        return ids

    def kept(self, going: Iterable[Stored]) -> Mapping[str, int] | None:
        """Legal hold → the messages that it keeps, of those that would go; None: none is in effect."""
        if not self.in_effect:
            return None
        messages = list(going)
        return {h.id: sum(map(h.covers, messages)) for h in self.in_effect.values()}
