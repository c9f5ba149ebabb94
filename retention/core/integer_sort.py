"""Sorting of integers as numbers that hold several keys and a place: sorted as values, several times faster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from retention.core.spans import Array

_BITS = 63
_APART = 64
"""The distance of values that tell whether an order is far from ascending; nearer ones may be exchanged."""
_FALL_OF = 128
"""Merging runs is faster than sorting if at most one in so many of these values is less than the one before."""
_SPARSE = 16
"""The average distance of values from which on sorting them takes less time than a mask."""


def argsort(values: Array) -> Array:
    """The same order as a stable `np.argsort`; shape (n,), int64.

    >>> argsort(np.array([3, -1, 3, 2])).tolist()
    [1, 3, 0, 2]
    """
    return lexsort([values], len(values))


def lexsort(keys: Sequence[Array], length: int) -> Array:
    """The same order as `np.lexsort`: by the last key, then by the one before it, then by place; shape (n,), int64.

    >>> lexsort([np.array([1, 0, 0]), np.array([5, 5, -2])], 3).tolist()
    [2, 1, 0]
    """
    order = _Order(length)
    for key in keys if length else ():
        order.then_by(key)
    return order.places()


def distinct_in_order(values: Array) -> Array:
    """The distinct values, ascending; found in a mask of all between the least and the most, if that is short.

    >>> distinct_in_order(np.array([5, 2, 5])).tolist()
    [2, 5]
    """
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if most - least >= _SPARSE * len(values):
        return np.unique(values)
    holds = np.zeros(most - least + 1, dtype=bool)
    holds[values - least] = True
    return np.flatnonzero(holds) + least


def fits_with_places(values: Array) -> bool:
    """Whether one number can hold any of the values and its place, so that they are sorted fast."""
    return not len(values) or _bits_of(values) + len(values).bit_length() <= _BITS


class _Order:
    """An order, and numbers to refine it: the place in it in the lowest bits, above it the keys since then."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._order: Array | None = None
        """None: the given order."""
        self._start()

    def _start(self) -> None:
        self._bits = self._length.bit_length()
        self._packed: Array | None = None

    def then_by(self, key: Array) -> None:
        """Sort by a key that outweighs all before; one too long for a number, in parts."""
        bits = _bits_of(key)
        if self._bits + bits > _BITS:
            self._sort()
        room = _BITS - self._bits
        values = key.astype(np.int64) - key.min().astype(np.int64)
        if bits <= room:
            self._pack(values, bits)
        elif not self._sort_by_leading(values.view(np.uint64), bits - room, room):
            for low in range(0, bits, room):
                part = (values.view(np.uint64) >> np.uint64(low)) & np.uint64((1 << room) - 1)
                self._pack(part.view(np.int64), min(room, bits - low))

    def _sort_by_leading(self, values: Array, low: int, room: int) -> bool:
        """Sort by the bits from `low` on, and then by all, if these change that order little; returns whether."""
        self._pack((values >> np.uint64(low)).view(np.int64), room)
        self._sort()
        ordered = self._ordered(values)
        if not _nearly_ascends(ordered):
            return False
        if (ordered[1:] < ordered[:-1]).any():
            self._order = self.places()[np.argsort(ordered, kind="stable")]
        return True

    def _pack(self, values: Array, bits: int) -> None:
        if self._bits + bits > _BITS:
            self._sort()
        if self._packed is None:
            self._packed = np.arange(self._length)
        self._packed |= self._ordered(values) << np.int64(self._bits)
        self._bits += bits

    def _sort(self) -> None:
        if self._packed is not None:
            self._packed.sort(kind="stable" if _nearly_ascends(self._packed) else None)
            self._packed &= (np.int64(1) << np.int64(self._length.bit_length())) - 1
            self._order = self._packed if self._order is None else self._order[self._packed]
        self._start()

    def _ordered(self, values: Array) -> Array:
        return values if self._order is None else values[self._order]

    def places(self) -> Array:
        """The order by all keys."""
        self._sort()
        return np.arange(self._length) if self._order is None else self._order


def _bits_of(values: Array) -> int:
    return (int(values.max()) - int(values.min())).bit_length()


def _nearly_ascends(values: Array) -> bool:
    few = values[::_APART]
    return int(np.count_nonzero(few[1:] < few[:-1])) * _FALL_OF <= len(few)
