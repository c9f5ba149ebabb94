"""A dropped stream: when it went, and by which run, as long as no write has begun another table in its place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Dropped:
    """The drop of a stream."""

    at_ns: int
    """Nanoseconds since the epoch."""
    run: str | None
    """The run that dropped it and can be undone; None: its grace is over, and nobody has a record of its files."""

    def as_json(self) -> dict[str, Any]:
        """The values by name."""
        return asdict(self)
