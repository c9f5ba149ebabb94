"""Layout by deadline: the split of a segment's messages among files that expire as a whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.schemas.deadlines import NEVER

SMALL_BYTES = 64 << 10
"""The minimum bytes, by the broker's accounting, that justify a separate file."""

_SECOND = 1e9
_SLICES = 8
"""Slices between lifetimes of n and 2n seconds; a slice is at most an eighth as wide as its lifetimes are long."""
CLASS_WITHOUT_TTL = 64 * _SLICES
"""The class of messages without TTL."""
CLASS_NEVER = CLASS_WITHOUT_TTL + 1
"""The class of messages that never expire."""


def lifetime_classes(rows: pa.Table) -> Array:
    """The class of each message by its lifetime, the time from its storage to its deadline; int64, 0 the shortest.

    Slices grow with the lifetime, so messages of one class that were stored together expire together. Lifetimes below a
    second are class 0; between n and 2n seconds (n a power of two) there are eight classes of equal width. Messages
    stored at about the same time share a segment anyway, so lifetimes are sliced instead of deadlines.

        life, seconds   0    1    1⅛   1¼   …    2    2¼   …    4
        class           0    1    2    3    …    9    10   …    17

    Args:
        rows: `ts_ns` and `deadline_ns`.
    """
    deadlines = pc.fill_null(rows["deadline_ns"], 0).to_numpy()
    # As floats: the lifetime of a TTL beyond the year 2262 exceeds int64.
    lives = (deadlines.astype(np.float64) - rows["ts_ns"].to_numpy()) / _SECOND
    mantissa, exponent = np.frexp(np.maximum(lives, 0.5))
    slices = np.floor((mantissa * 2 - 1) * _SLICES).astype(np.int64)
    classes = np.where(lives < 1, 0, (exponent.astype(np.int64) - 1) * _SLICES + slices + 1)
    classes[deadlines == NEVER] = CLASS_NEVER
    classes[pc.is_null(rows["deadline_ns"]).to_numpy()] = CLASS_WITHOUT_TTL
    return classes


def bucket_ends(classes: Array, sizes: Array, most: int) -> Array:
    """Split classes among files: the highest class of each file but the last, ascending.

    At first, each class has its own file. When a class of a file expires, all later classes in the file are rewritten.
    So the adjacent files with the fewest such bytes are merged first, while there are more than `most` files, or while
    the merge costs fewer bytes than a small file has.

    Merging 9 with 10 rewrites 100 kB when 9 expires; merging 1 with 9 rewrites a megabyte. The first file has class 1:

    >>> bucket_ends(np.array([1, 9, 10]), np.array([200_000, 1_000_000, 100_000]), most=2).tolist()
    [1]

    Args:
        classes: int64, the class of each message.
        sizes: int64, the bytes of each message.
        most: the maximum number of files.
    """
    present = np.unique(classes)
    weights = np.bincount(np.searchsorted(present, classes), weights=sizes)
    counts = np.ones(len(present))
    last = present
    while len(last) > 1:
        rewritten = counts[:-1] * weights[1:]
        at = int(np.argmin(rewritten))
        if len(last) <= most and rewritten[at] >= SMALL_BYTES:
            break
        weights[at + 1] += weights[at]
        counts[at + 1] += counts[at]
        last, weights, counts = (np.delete(values, at) for values in (last, weights, counts))
    return last[:-1]


def buckets_of(rows: pa.Table, ends: Array) -> Array:
    """The number of each message's file; int64.

    Args:
        rows: `ts_ns` and `deadline_ns`.
        ends: the result of `bucket_ends`.
    """
    return np.searchsorted(ends, lifetime_classes(rows))
