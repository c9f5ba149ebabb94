"""What people see of a payload: the beginning of its text."""

from __future__ import annotations

_PREVIEW = 60


def preview(payload: bytes | None) -> str:
    """At most 60 characters; what cannot be printed is a dot."""
    text = (payload or b"")[: 4 * _PREVIEW].decode(errors="replace")
    shown = "".join(character if character.isprintable() else "·" for character in text)
    return shown if len(shown) <= _PREVIEW else f"{shown[:_PREVIEW]}…"
