"""Numbering of a sorted frame in two levels: blocks by their totals, and rows only where a segment or batch ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import islice

import numpy as np

from retention.core.spans import Array
from retention.dialects.dialect import Block, Layer

MOST_ROWS = 4_000_000
"""Rows of blocks that are asked for at a time: 16 bytes each."""
BlockRows = tuple[Array, Array]
"""`Dialect.laid_by` and `Dialect.sizes` of each row of a block."""


def lay(
    layer: Layer,
    blocks: Sequence[Block],
    rows_of: Callable[[Sequence[Block]], Mapping[Block, BlockRows]],
) -> Layer:
    """Lay the blocks of a frame, which end up where they would one row after another.

    A block goes by its totals unless something ends in it. Of the others rows are asked for, many blocks at a time:
    those of which an even distribution of rows lets one expect that they will be needed. A wrong guess costs one
    more question.

    Args:
        layer: where the log ends; it is moved on.
        blocks: all of them, in order.
        rows_of: asks for the rows of some blocks.
    """
    at_hand: Mapping[Block, BlockRows] = {}
    for at, block in enumerate(blocks):
        if layer.take_whole(block):
            continue
        if block not in at_hand:
            at_hand = rows_of(_needed(layer, blocks, at))
        layer.take(block, *at_hand[block])
    return layer


def _needed(layer: Layer, blocks: Sequence[Block], start: int) -> list[Block]:
    """The blocks from `start` on whose rows will be needed, if those of each are alike; the first one certainly is."""
    ahead = deepcopy(layer)
    needed: list[Block] = []
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


def _alike(block: Block) -> BlockRows:
    """The rows of a block if they had one size, and their times or addresses rose evenly."""
    laid_by = block.first + np.linspace(0, block.last - block.first, block.rows).astype(np.int64)
    sizes = np.diff(np.linspace(0, block.bytes, block.rows + 1).astype(np.int64))
    return laid_by, sizes
