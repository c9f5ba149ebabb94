"""Seals that identify log entries: digests of their bytes, never length and time alone."""

from __future__ import annotations

import hashlib
import os

from retention.storage import files

WHOLE_BYTES = 2**20
"""The maximum length of an entry to digest whole; for a longer entry, only head and tail are digested."""
_END_BYTES = 2**18


def seal_of(entry: bytes) -> str:
    """The seal that distinguishes an entry from any other: its length and a SHA-256.

    Every writer puts something unique into an entry: a random token, a transaction identifier, file names. An equal
    entry therefore means an equal log before it, unless parts of two logs were combined.
    """
    if len(entry) <= WHOLE_BYTES:
        return _sealed(len(entry), entry)
    return _sealed(len(entry), entry[:_END_BYTES] + entry[-_END_BYTES:])


def seal_at(location: str) -> str | None:
    """The seal of the entry at a location; None if there is none."""
    try:
        with files.reading_bytes(location) as source:
            length = source.seek(0, os.SEEK_END)
            source.seek(0)
            if length <= WHOLE_BYTES:
                return seal_of(source.read())
            head = source.read(_END_BYTES)
            source.seek(length - _END_BYTES)
            return _sealed(length, head + source.read(_END_BYTES))
    except FileNotFoundError:
        return None


def _sealed(length: int, content: bytes) -> str:
    return f"{length}/{hashlib.sha256(content).hexdigest()}"
