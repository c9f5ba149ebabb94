"""Variable-length integers in Go's encoding, for whole columns at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

_MAX_BYTES = 10
_MORE = 0x80


def decode(data: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decode the unsigned integers that begin at `places` of `data` (uint8); returns them and their end positions."""
    values = np.zeros(len(places), dtype=np.uint64)
    ends = places.copy()
    open_ = np.arange(len(places))
    for at in range(_MAX_BYTES):
        read = data[places[open_] + at]
        values[open_] |= (read & (_MORE - 1)).astype(np.uint64) << np.uint64(7 * at)
        ends[open_] += 1
        open_ = open_[read >= _MORE]
        if not len(open_):
            break
    return values, ends


def encode(columns: Sequence[np.ndarray]) -> pa.Array:
    """Encode each row's unsigned integers (uint64) as one binary value, one after the other: 300 is AC 02."""
    octets = np.concatenate([_octets(column) for column in columns], axis=1)
    used = octets[:, :, 1].astype(bool)
    offsets = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(octets[:, :, 0][used])]
    return pa.Array.from_buffers(pa.binary(), len(octets), buffers)


def zigzag(numbers: np.ndarray) -> np.ndarray:
    """Convert signed integers to unsigned ones, small for small magnitudes: 0, -1, 1, -2 to 0, 1, 2, 3."""
    signed = numbers.astype(np.int64)
    encoded: np.ndarray = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    return encoded


def unzigzag(numbers: np.ndarray) -> np.ndarray:
    """Convert the unsigned integers of `zigzag` back to signed ones."""
    signed: np.ndarray = (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(
        np.int64
    )
    return signed


def _octets(numbers: np.ndarray) -> np.ndarray:
    """Encode one column, shape (rows, 10, 2), uint8: each byte of the encoding, and whether it is used."""
    parts = numbers[:, None] >> (7 * np.arange(_MAX_BYTES, dtype=np.uint64))[None, :]
    used = parts != 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    octets = (parts & np.uint64(_MORE - 1)).astype(np.uint8) | (more * np.uint8(_MORE))
    return np.stack([octets, used.astype(np.uint8)], axis=2)
