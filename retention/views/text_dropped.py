"""A dropped stream as text."""

from __future__ import annotations

from retention.core.dropped import Dropped
from retention.views.wording import brief_instant


def dropped_clause(dropped: Dropped) -> str:
    """The clause for a dropped stream: when it went, and how it comes back."""
    back = "" if dropped.run is None else f"; `retention undo {dropped.run}` brings it back"
    return f"dropped at {brief_instant(dropped.at_ns)}{back}"


def dropped_text(dropped: Dropped | None) -> list[str]:
    """The line for a dropped stream; none for any other."""
    return [] if dropped is None else [f"  {dropped_clause(dropped)}"]
