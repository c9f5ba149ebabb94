"""Numbers at any byte of a window, aligned or not."""

from __future__ import annotations

import numpy as np

_WORD = 8


def numbers(window: bytes, shift: int, span: int) -> np.ndarray:
    """The little-endian u64 at `shift` bytes after each position with `span` bytes before the window's end."""
    places = max(0, len(window) - span + 1)
    words = np.empty(places, dtype=np.uint64)
    for first in range(min(_WORD, places)):
        count = (places - first + _WORD - 1) // _WORD
        words[first::_WORD] = np.frombuffer(window, "<u8", count, shift + first)
    return words
