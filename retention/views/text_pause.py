"""Pauses of removals as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.views.wording import brief_instant

if TYPE_CHECKING:
    from retention.stores.pauses import Pause


def pause_clause(pause: Pause) -> str:
    """The clause for a pause, for a state."""
    where = "" if pause.name else ", with the whole warehouse"
    return f"paused since {brief_instant(pause.since_ns)}{where} ({pause.reason})"


def pause_line(pause: Pause, verb: str) -> str:
    """The line for a pause that was placed or has ended."""
    since = f"paused since {brief_instant(pause.since_ns)}: {pause.reason}"
    return f"{pause.name or 'the whole warehouse'}: {verb} ({since})"
