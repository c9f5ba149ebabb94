"""A dropped stream: the time and the run of the drop, until a write starts a new table in its place."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from retention.core.json_object import JsonObject


@dataclass(frozen=True)
class StreamDrop:
    """The drop of a stream."""

    at_ns: int
    """Nanoseconds since the epoch."""
    run: str | None
    """The run that dropped it and can be undone; None: its grace is over, and no record of its files is left."""

    def as_json(self) -> JsonObject:
        """The values by name."""
        return asdict(self)
