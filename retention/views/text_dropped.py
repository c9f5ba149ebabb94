"""A dropped stream as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.views.wording import brief_instant

if TYPE_CHECKING:
    from retention.core.dropped import StreamDrop


def dropped_clause(dropped: StreamDrop) -> str:
    """The clause for a dropped stream: the time of the drop, and how to undo it."""
    back = "" if dropped.run is None else f"; `retention undo {dropped.run}` restores it"
    return f"dropped at {brief_instant(dropped.at_ns)}{back}"


def dropped_text(dropped: StreamDrop | None) -> list[str]:
    """The line for a dropped stream; empty for any other."""
    return [] if dropped is None else [f"  {dropped_clause(dropped)}"]
