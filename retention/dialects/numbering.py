"""Numbering of a sorted frame on two levels: blocks by their totals, and rows only where a segment or batch ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import islice

import numpy as np

from retention.core.spans import Array
from retention.dialects.dialect import Layer, RowBlock

MOST_ROWS = 4_000_000
"""Rows of blocks to read at a time, 16 bytes each."""
BlockRows = tuple[Array, ...]
"""`Dialect.laid_by`, `Dialect.sizes` and `Dialect.also_narrow` of each row of a block."""


def lay(
    layer: Layer,
    blocks: Sequence[RowBlock],
    rows_of: Callable[[Sequence[RowBlock]], Mapping[RowBlock, BlockRows]],
) -> Layer:
    """Lay the blocks of a frame, with the same result as row by row.

    A block is laid by its totals unless a segment or batch ends in it. The other blocks need their
    rows, which are read for many blocks at a time: those predicted from an even distribution of
    rows. A wrong prediction costs one more read.

    Args:
        layer: the end of the log; it is advanced.
        blocks: all blocks, in order.
        rows_of: reads the rows of some blocks.
    """
    at_hand: Mapping[RowBlock, BlockRows] = {}
    for at, block in enumerate(blocks):
        if layer.take_whole(block):
            continue
        if block not in at_hand:
            at_hand = rows_of(_needed(layer, blocks, at))
        layer.take(block, *at_hand[block])
    return layer


def _needed(layer: Layer, blocks: Sequence[RowBlock], start: int) -> list[RowBlock]:
    """The predicted blocks from `start` on that need their rows, if rows are evenly distributed; includes the first."""
    ahead = deepcopy(layer)
    needed: list[RowBlock] = []
    rows = 0
    for block in islice(blocks, start, None):
        if ahead.take_whole(block):
            continue
        if needed and rows + block.rows > MOST_ROWS:
            break
        needed.append(block)
        rows += block.rows
        ahead.take(block, *_alike(block))
    return needed


def _alike(block: RowBlock) -> BlockRows:
    """The rows of a block, assuming equal sizes and evenly rising times or addresses."""
    laid_by = block.first + np.linspace(0, block.last - block.first, block.rows).astype(np.int64)
    sizes = np.diff(np.linspace(0, block.bytes, block.rows + 1).astype(np.int64))
    return laid_by, sizes
