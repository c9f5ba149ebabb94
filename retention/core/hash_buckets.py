"""Buckets of subjects, or of keys, by a hash that is the same in every process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.core.spans import Array
from retention.core.text_order import words_of

_AT_ONCE = 8_192
_MIX = np.uint64(0x9E3779B97F4A7C15)


def hash_buckets(texts: pa.ChunkedArray, buckets: int) -> Array:
    """The bucket of each text, of strings or bytes; shape (n,), uint64, below `buckets`."""
    hashes = [
        _hashes(chunk[at : at + _AT_ONCE])
        for chunk in texts.chunks
        for at in range(0, len(chunk), _AT_ONCE)
    ]
    return np.concatenate([np.zeros(0, np.uint64), *hashes]) % np.uint64(buckets)


def _hashes(texts: pa.StringArray) -> Array:
    """A hash of each text: its length, mixed with its bytes, eight at a time."""
    words, starts, lengths = words_of(texts)
    hashes = lengths.astype(np.uint64)
    for at in range(0, int(lengths.max(initial=0)), 8):
        reaches = lengths > at
        longer = slice(None) if reaches.all() else np.flatnonzero(reaches)
        unused = np.uint64(8) * np.maximum(8 + at - lengths[longer], 0).astype(np.uint64)
        taken = (words[starts[longer] + at] << unused) >> unused
        mixed = (hashes[longer] ^ taken) * _MIX
        hashes[longer] = mixed ^ (mixed >> np.uint64(32))
    return hashes
