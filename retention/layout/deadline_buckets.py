"""Layout by deadline: which messages of a segment share a file, so that files expire as a whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from schemas.messages import NEVER

SMALL_BYTES = 64 << 10
"""Files are not divided for less than this, by the broker's accounting."""

_SECOND = 1e9
_SLICES = 8
"""Slices between a life of n seconds and one of 2n: a slice is at most an eighth as wide as its lives are long."""
WITHOUT_DEADLINE = 64 * _SLICES
"""The class of messages without TTL."""
WITHOUT_END = WITHOUT_DEADLINE + 1
"""The class of messages whose TTL is never."""


def classes_of(rows: pa.Table) -> Array:
    """The class of each message by its life, the time from when it was stored to its deadline; int64, 0 the shortest.

    Slices of time grow with life, so that messages of a class that were stored together expire together: lives below
    a second are class 0, and between n and 2n seconds (n a power of two) lie eight classes of equal width. Neighbours
    in time of storing lie in one segment anyhow, which is why lives are sliced and not deadlines.

    Args:
        rows: `ts_ns` and `deadline_ns`.
    """
    deadlines = pc.fill_null(rows["deadline_ns"], 0).to_numpy()
    # As floats: a TTL beyond the year 2262 leaves a deadline whose distance no int64 holds.
    lives = (deadlines.astype(np.float64) - rows["ts_ns"].to_numpy()) / _SECOND
    mantissa, exponent = np.frexp(np.maximum(lives, 0.5))
    slices = np.floor((mantissa * 2 - 1) * _SLICES).astype(np.int64)
    classes = np.where(lives < 1, 0, (exponent.astype(np.int64) - 1) * _SLICES + slices + 1)
    classes[deadlines == NEVER] = WITHOUT_END
    classes[pc.is_null(rows["deadline_ns"]).to_numpy()] = WITHOUT_DEADLINE
    return classes


def groups_among(classes: Array, sizes: Array, most: int) -> Array:
    """Divide classes among files: the highest class of each file but the last, ascending.

    To begin with each class has a file of its own. When a class of a file expires, all that lies behind it in the
    file is written again; so the neighbours that make for the fewest such bytes are merged first, while there are
    more files than may be, or while that are fewer bytes than a small file has.

    Args:
        classes: of messages that are to be divided.
        sizes: their bytes.
        most: how many files there may be.
    """
    present = np.unique(classes)
    weights = np.bincount(np.searchsorted(present, classes), weights=sizes)
    counts = np.ones(len(present))
    last = present
    while len(last) > 1:
        again = counts[:-1] * weights[1:]
        at = int(np.argmin(again))
        if len(last) <= most and again[at] >= SMALL_BYTES:
            break
        weights[at + 1] += weights[at]
        counts[at + 1] += counts[at]
        last, weights, counts = (np.delete(one, at) for one in (last, weights, counts))
    return last[:-1]


def group_of(rows: pa.Table, ends: Array) -> Array:
    """The number of the file that each message goes to; int64.

    Args:
        rows: `ts_ns` and `deadline_ns`.
        ends: as `groups_among` says.
    """
    return np.searchsorted(ends, classes_of(rows))
