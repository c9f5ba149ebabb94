"""Places of deliveries in the bytes of a connection: small ones found many at a time, large ones one by one."""

from __future__ import annotations

import numpy as np

START, MARK, END, AFTER = range(4)
"""Columns: begin of the frame, end of its subject, end of its control line, begin of the next frame."""
NO_PLACES = np.empty((0, 4), np.int64)

_LINE_END = b"\r\n"
TRAILER = 4
"""The line ends after a control line and after a body."""
_SMALL = 2_048
"""Bytes of a frame from which on searching its body for line ends costs more than passing over it."""
_MANY = 16_384
_WINDOW = 1 << 20
"""Bytes that are searched at once, at least and at most."""
_DIGITS = 10
"""The most digits of a size."""
_BASE = 10
_CR, _LF, _BLANK, _H, _ZERO = b"\r\n H0"


def find_deliveries(data: bytearray, at: int, marker: bytes) -> np.ndarray:
    """Places of the whole deliveries at the front of `data[at:]`, up to the first frame of another kind.

    Args:
        data: what came; a frame begins at `at`.
        at: an offset.
        marker: the bytes between the subject of a delivery and its reply's tokens.

    Returns:
        int64, a row a delivery: `START`, `MARK`, `END`, `AFTER`.
    """
    runs: list[np.ndarray] = []
    single: list[int] = []
    find, size = data.find, len(data)
    while (end := find(_LINE_END, at)) >= 0 and (mark := find(marker, at, end)) >= 0:
        after = end + int(data[data.rfind(b" ", mark, end) + 1 : end]) + TRAILER
        if after > size:
            break
        if after - at < _SMALL and size - at >= _MANY:
            run = _small(data, at, marker)
            runs += [_rows(single), run]
            single, at = [], int(run[-1, AFTER])
        else:
            single += (at, mark, end, after)
            at = after
    return np.concatenate([*runs, _rows(single)]) if runs else _rows(single)


def _rows(flat: list[int]) -> np.ndarray:
    return np.array(flat, np.int64).reshape(-1, 4)


def _small(data: bytearray, at: int, marker: bytes) -> np.ndarray:
    """Places of the deliveries from a whole one on, within a window, up to the first frame of another kind."""
    view = np.frombuffer(data, np.uint8)[at : at + _WINDOW]
    ends = np.flatnonzero(view[:-1] == _CR)
    ends = ends[view[ends + 1] == _LF]
    afters = ends + _sizes(view, ends) + TRAILER
    chosen = _chain(np.searchsorted(ends, afters))
    ends, afters = ends[chosen], afters[chosen]
    starts = np.concatenate([[0], afters[:-1]])
    marks = _blanks_after(view, starts + len(b"MSG ") + (view[starts] == _H))
    is_whole = (afters <= len(view)) & (marks < ends) & _has(view, marks, marker)
    count = len(ends) if is_whole.all() else int(np.argmin(is_whole))
    return np.stack([starts, marks, ends, afters], axis=1)[:count] + at


def _sizes(view: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The decimal numbers before some offsets; beyond the view where there is none."""
    sizes, scale = np.zeros(len(ends), np.int64), 1
    inside = np.ones(len(ends), bool)
    for back in range(1, _DIGITS + 1):
        digits = view[ends - back] - _ZERO
        inside &= digits < _BASE
        if back == 1:
            sizes[~inside] = len(view)
        if not inside.any():
            break
        sizes += digits * inside * np.int64(scale)
        scale *= _BASE
    return sizes


def _chain(following: np.ndarray) -> np.ndarray:
    """The entries that are reached from the first one, if each names its follower."""
    steps, chosen, entry = following.tolist(), [], 0
    while entry < len(steps):
        chosen.append(entry)
        entry = steps[entry]
    return np.array(chosen, np.int64)


def _blanks_after(view: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The first blank at or after each offset; the length of the view where there is none."""
    blanks = np.append(np.flatnonzero(view == _BLANK), len(view))
    return blanks[np.searchsorted(blanks, begins)]


def _has(view: np.ndarray, begins: np.ndarray, text: bytes) -> np.ndarray:
    """Whether a text is at each offset."""
    windows = np.lib.stride_tricks.sliding_window_view(view, len(text))
    there = windows[np.minimum(begins, len(windows) - 1)]
    return (there == np.frombuffer(text, np.uint8)).all(axis=1)
