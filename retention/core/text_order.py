"""The bytes of texts as numbers, and the order of texts, found from a few bytes of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array

_TEXT_BYTES = 7
"""The bytes of a text in its key; the last byte of a key is their number."""
_LONGER = _TEXT_BYTES + 1
"""The number in keys of texts that have more bytes."""
_LONG_RUN = 64
"""The average length of ascending runs from which on merging them is faster than a radix sort."""
_MOST_TIED = 0.25
"""The share of texts with longer equal parts from which on comparing all bytes is faster."""


def text_order(texts: pa.StringArray) -> tuple[Array, Array] | None:
    """The stable ascending order of texts without nulls, and a mask of those, in this order, that equal the one before.

    None: a few bytes do not tell the order of too many.

    >>> [found.tolist() for found in text_order(pa.array(["b", "a", "b"]))]
    [[1, 0, 2], [False, False, True]]
    """
    keys = _keys(texts)
    order = _stable_order(keys)
    ordered = keys[order]
    repeats = np.zeros(len(texts), dtype=bool)
    repeats[1:] = ordered[1:] == ordered[:-1]
    # Equal keys of longer texts do not tell their order.
    tied = repeats.copy()
    tied[:-1] |= repeats[1:]
    tied &= (ordered & np.uint64(0xFF)) == _LONGER
    if np.count_nonzero(tied) > _MOST_TIED * len(texts):
        return None
    if tied.any():
        among = order[tied]
        compared = texts.take(pa.array(among))
        again = pc.sort_indices(compared)
        order[tied] = among[again.to_numpy()]
        compared = compared.take(again)
        equal = pc.equal(compared[1:], compared[:-1]).to_numpy(zero_copy_only=False)
        repeats[tied] = np.append(False, equal)
    return order, repeats


def _stable_order(keys: Array) -> Array:
    """The order of a stable `np.argsort`, which merges long runs; short ones are sorted 16 bits at a time, by radix."""
    falls = np.count_nonzero(keys[1:] < keys[:-1])
    if falls * _LONG_RUN < len(keys):
        return np.argsort(keys, kind="stable")
    digits = np.ascontiguousarray(keys.astype("<u8").view("<u2").reshape(-1, 4).T)
    order = np.argsort(digits[0], kind="stable")
    for digit in digits[1:]:
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def words_of(texts: pa.StringArray) -> tuple[Array, Array, Array]:
    """Eight bytes as a number (little-endian) from each byte of texts on; where each text begins; its length."""
    octets, starts, lengths = octets_of(texts)
    return words_in(octets), starts, lengths


def octets_of(texts: pa.StringArray) -> tuple[Array, Array, Array]:
    """The bytes of texts without nulls, and eight zeros; where each text begins; its length in bytes."""
    _, offsets, content = texts.buffers()
    edges = np.frombuffer(offsets, np.int32)[texts.offset :][: len(texts) + 1]
    octets = np.zeros(int(edges[-1] - edges[0]) + 8, np.uint8)
    octets[:-8] = np.frombuffer(content or b"", np.uint8)[edges[0] : edges[-1]]
    return octets, edges[:-1] - edges[0], np.diff(edges)


def words_in(octets: Array) -> Array:
    """Eight bytes as a number (little-endian) from each byte on that has seven after it."""
    return np.ndarray((len(octets) - 7,), "<u8", octets, strides=(1,))


def _keys(texts: pa.StringArray) -> Array:
    """A number for each text: its first bytes after those that all have in common, then how many these are.

    Texts with different keys are in the order of these. After "a.", "a.b" has the bytes 62 00 00 00 00 00 00 01.
    """
    words, starts, lengths = words_of(texts)
    common = _common_bytes(words, starts, lengths)
    lengths = np.minimum(lengths - common, _LONGER).astype(np.uint64)
    unused = np.uint64(8) * (np.uint64(8) - np.minimum(lengths, np.uint64(_TEXT_BYTES)))
    keys: Array = (words[starts + common].byteswap() >> unused) << unused
    keys[lengths == 0] = 0
    return keys | lengths


def _common_bytes(words: Array, starts: Array, lengths: Array) -> int:
    """The number of bytes with which all texts begin, found from eight bytes of each at a time."""
    shortest = int(lengths.min()) if len(lengths) else 0
    for common in range(0, shortest, 8):
        here = words[starts + common]
        differing = int(np.bitwise_or.reduce(here ^ here[0]))
        if differing:
            # The lowest bit that differs lies in the first byte that does.
            return min(common + ((differing & -differing).bit_length() - 1) // 8, shortest)
    return shortest
