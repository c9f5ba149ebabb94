"""The definition levels of a data page of version 1: which values of a nullable column are not null."""

from __future__ import annotations

import numpy as np

from retention.storage.row_groups.compact import read_varint, varint_bytes
from retention.storage.row_groups.footer import UnknownLayoutError

_LENGTH_BYTES = 4
_PACKED = 8
"""The values of a byte in a run of single bits."""


def split_levels(content: memoryview, values: int) -> tuple[np.ndarray, int]:
    """Whether each value of a page is not null, and the position of the first value that is not.

    Raises:
        UnknownLayoutError: the levels are damaged.
    """
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    if end > len(content):
        raise UnknownLayoutError("the levels of a page are cut off")
    defined, at, filled = np.empty(values, bool), _LENGTH_BYTES, 0
    try:
        while filled < values:
            head, at = read_varint(content[:end], at)
            run, at = _run(content[:end], at, head)
            taken = run[: values - filled]
            defined[filled : filled + len(taken)] = taken
            filled += len(taken)
    except (IndexError, ValueError) as error:
        raise UnknownLayoutError("the levels of a page are damaged") from error
    return defined, end


def levels_bytes(defined: np.ndarray) -> bytes:
    """The definition levels of values, as one run."""
    if defined.all():
        run = varint_bytes(len(defined) << 1) + b"\x01"
    else:
        groups = -(-len(defined) // _PACKED)
        run = varint_bytes(groups << 1 | 1) + np.packbits(defined, bitorder="little").tobytes()
    return len(run).to_bytes(_LENGTH_BYTES, "little") + run


def _run(content: memoryview, at: int, head: int) -> tuple[np.ndarray, int]:
    """The levels of a run, and the position after it."""
    count, is_packed = head >> 1, head & 1
    if not count:
        raise ValueError("a run is empty")
    if not is_packed:
        return np.broadcast_to(content[at] != 0, count), at + 1
    octets = np.frombuffer(content[at : at + count], np.uint8)
    return np.unpackbits(octets, bitorder="little").view(bool), at + len(octets)
