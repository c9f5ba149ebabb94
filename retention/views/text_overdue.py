"""Overdue messages as text: kept messages older than `max_age`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.core.wording import counted
from retention.views.wording import brief_instant


def overdue_text(overdue: Mapping[str, Any] | None) -> str:
    """The number of overdue messages, the message that blocks them, and the remedy; empty if none is certain.

    Args:
        overdue: as from `Overdue.as_json`; None: no overdue messages.
    """
    if overdue is None or not overdue["messages_at_least"]:
        return ""
    least = overdue["messages_at_least"]
    bound = "" if overdue["messages_at_most"] == least else "at least "
    number = f"{bound}{counted(least, 'message')} older than max_age {'is' if least == 1 else 'are'} kept"
    return f"{number} after {_end(overdue)}, which is younger (`expiry: each` would remove old ones too)"


def _end(overdue: Mapping[str, Any]) -> str:
    seq, stored_ns = overdue["behind_seq"], overdue["behind_ts_ns"]
    if seq is None:
        return "a message"
    return f"message {seq:,}, stored {brief_instant(stored_ns)}"
