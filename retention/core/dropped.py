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
    """The run that dropped it; None: the run history has no record of it any more."""

    def as_json(self) -> dict[str, Any]:
        """The values by name."""
        return asdict(self)
