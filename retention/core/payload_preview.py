"""A preview of a payload for people: the beginning of its text."""

from __future__ import annotations

_PREVIEW = 60


def preview(payload: bytes | None) -> str:
    """The first 60 characters of a payload's text; a dot replaces an unprintable one."""
    text = (payload or b"")[: 4 * _PREVIEW].decode(errors="replace")
    shown = "".join(character if character.isprintable() else "·" for character in text)
    return shown if len(shown) <= _PREVIEW else f"{shown[:_PREVIEW]}…"
