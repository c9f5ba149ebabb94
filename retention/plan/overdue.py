"""Overdue messages: older than `max_age`, but kept, because they come after the end of the age scan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from retention.core.json_object import JsonObject


@dataclass(frozen=True)
class Overdue:
    """Messages that `expiry: each` would remove in addition to a pass (docs/semantics/limits.md)."""

    messages_at_least: int
    messages_at_most: int | None
    """The upper bound; None: only a part of the stream was read."""
    behind_seq: int | None = None
    """The message at which the scan ends; None: unknown without reading rows."""
    behind_ts_ns: int | None = None
    """The time of that message, nanoseconds since the epoch."""

    def as_json(self) -> JsonObject:
        """The values by name, as the JSON of `plan`, `apply` and `state` has them."""
        return asdict(self)

    def at_least(self) -> Overdue | None:
        """The numbers that remain certain if only a part of the stream is known; None: none."""
        return replace(self, messages_at_most=None) if self.messages_at_least else None


def overdue_from_json(values: Mapping[str, Any] | None) -> Overdue | None:
    """Read an `Overdue` from `Overdue.as_json` values; None stays None."""
    return None if values is None else Overdue(**values)
