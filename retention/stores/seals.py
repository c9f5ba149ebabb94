"""Seals, by which entries of a log are known: digests of their bytes, never length and time alone."""

from __future__ import annotations

import hashlib

from retention.storage import files

WHOLE_BYTES = 2**20
"""An entry up to this length is digested whole; of a longer one, its head and its tail."""
_END_BYTES = 2**18


def seal_of(entry: bytes) -> str:
    """The seal that tells an entry from any other: its length, and a SHA-256.

    Every writer puts into an entry something that no second one has: a random token, an identifier of its transaction,
    names of files. So an equal entry means an equal log before it, unless somebody put parts of two logs together.
    """
    if len(entry) <= WHOLE_BYTES:
        return _sealed(len(entry), entry)
    return _sealed(len(entry), entry[:_END_BYTES] + entry[-_END_BYTES:])


def seal_at(location: str) -> str | None:
    """The seal of the entry at a location, None if there is none."""
    try:
        with files.reading(location) as source:
            length = source.size()
            if length <= WHOLE_BYTES:
                return seal_of(source.read())
            head = source.read(_END_BYTES)
            source.seek(length - _END_BYTES)
            return _sealed(length, head + source.read(_END_BYTES))
    except FileNotFoundError:
        return None


def _sealed(length: int, content: bytes) -> str:
    return f"{length}/{hashlib.sha256(content).hexdigest()}"
