"""The tokens of subjects, found in their bytes: numbers and names without a text for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from retention.core.spans import Array
from retention.core.text_order import octets_of, words_in

_DOT = ord(".")
_WORD = 8
"""Bytes read at once; of a number, its last ones first."""
_ZEROS = np.uint64(int.from_bytes(b"0" * _WORD, "little"))
_TO_HIGHEST_BIT = np.uint64(0x7676767676767676)
"""The addend that sets the highest bit of a byte above nine."""
_HIGHEST_BITS = np.uint64(0x8080808080808080)
_JOINS = (
    (np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(10 << 8 | 1), np.uint64(8)),
    (np.uint64(0x00FF00FF00FF00FF), np.uint64(100 << 16 | 1), np.uint64(16)),
    (np.uint64(0x0000FFFF0000FFFF), np.uint64(10_000 << 32 | 1), np.uint64(32)),
)
"""Mask, factor and shift that join neighbouring numbers of one, two and four digits in a word."""
_NINE = 9
_MOST_DIGITS = 19
_LARGEST = np.uint64(2**63 - 1)


class TokenBytes:
    """The tokens of subjects after the same prefix, in the same number.

    Args:
        octets: the bytes of all subjects, as `octets_of`.
        bounds: for each token the byte before it, in each subject; then the byte after the last one.
    """

    def __init__(self, octets: Array, bounds: Sequence[Array]) -> None:
        self._octets = octets
        self._words = words_in(octets)
        self._bounds = bounds
        self.count = len(bounds) - 1
        """The number of tokens of each subject after the prefix."""

    @classmethod
    def of(cls, subjects: pa.StringArray, prefix: bytes) -> Self | None:
        """The tokens of subjects; None if one is null, or has another prefix or number of tokens, or there is none.

        Args:
            subjects: the subjects.
            prefix: eight bytes, with a dot in the end.
        """
        if subjects.null_count or not len(subjects):
            return None
        octets, starts, lengths = octets_of(subjects)
        dots = np.flatnonzero(octets == _DOT)
        if len(dots) % len(subjects):
            return None
        starts, ends = starts.astype(np.int64), starts + lengths
        inside = [*dots.reshape(len(subjects), -1).T]
        ahead = prefix.count(b".")
        if len(inside) < ahead or (inside[0] < starts).any() or (inside[-1] >= ends).any():
            return None
        if (words_in(octets)[starts] != np.uint64(int.from_bytes(prefix, "little"))).any():
            return None
        return cls(octets, [starts + _WORD - 1, *inside[ahead:], ends])

    def texts(self, place: int) -> pa.StringArray:
        """The tokens at a place after the prefix, from 0."""
        begins, ends = self._places(place)
        offsets = np.append(0, np.cumsum(ends - begins))
        octets = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], ends - begins)
        content = pa.py_buffer(self._octets[octets])
        edges = pa.py_buffer(offsets.astype(np.int32))
        return pa.StringArray.from_buffers(len(begins), edges, content)

    def numbers(self, place: int) -> Array | None:
        """The tokens at a place as int64; None if one of them is not digits within 63 bits."""
        begins, ends = self._places(place)
        lengths = ends - begins
        shortest, longest = int(lengths.min()), int(lengths.max())
        if not shortest or longest > _MOST_DIGITS:
            return None
        if longest == 1:
            digits = self._octets[begins] - np.uint8(ord("0"))
            return None if (digits > _NINE).any() else digits.astype(np.int64)
        numbers = np.zeros(len(begins), np.uint64)
        for done in range(0, longest, _WORD):
            digits = self._words[np.maximum(ends - done - _WORD, 0)] ^ _ZEROS
            if shortest < done + _WORD:
                before = (8 * np.clip(done + _WORD - lengths, 0, _WORD)).astype(np.uint64)
                digits = digits >> before << before
            if (((digits + _TO_HIGHEST_BIT) | digits) & _HIGHEST_BITS).any():
                return None
            for mask, factor, shift in _JOINS:
                digits = (digits & mask) * factor >> shift
            numbers += digits * np.uint64(10**done)
        return None if (numbers > _LARGEST).any() else numbers.astype(np.int64)

    def _places(self, place: int) -> tuple[Array, Array]:
        return self._bounds[place] + 1, self._bounds[place + 1]
