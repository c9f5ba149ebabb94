"""Blocks of rows in files: ordered blocks are used as they are, overlapping ones are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from retention.core.row_order import KEY_BEFORE_ALL, Key

RANGE_BYTES = 64 << 20
"""The approximate stored bytes of one merge."""
MOST_RANGE_BYTES = 8 * RANGE_BYTES
PART_BYTES = 16 << 20, 128 << 20
"""Minimum and maximum bytes of rows for one writing task; between them, tasks of a cluster get equal shares."""
MOST_READ = 4
"""The maximum average number of reads of a block; a merge reads whole blocks for the rows of a range."""


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """Ordered rows, in a file of blocks; or, of rows that a merge reads, their places."""

    location: str
    offset: int
    narrow: int
    """Length of the narrow columns for layout, at the beginning of the block, in bytes."""
    length: int
    """Length of the block in bytes."""
    rows: int
    bytes: int
    """The sum of `Dialect.sizes`."""
    first: int
    """`Dialect.laid_by` of the first row."""
    last: int
    """The highest `Dialect.laid_by` of a row."""
    low: Key
    """The key of the first row."""
    high: Key
    """The key of the last row."""
    merge: BlockMerge | None = None
    """The merge whose rows the block orders; None: the block has its own."""


@dataclass(frozen=True)
class BlockMerge:
    """A range of keys, and the blocks with rows in it."""

    low: Key
    """The lowest key."""
    end: Key | None
    """The first key after the range; None if there is none."""
    blocks: tuple[StoredBlock, ...]

    @property
    def length(self) -> int:
        """The bytes to read."""
        return sum(block.length for block in self.blocks)

    @property
    def rows(self) -> int:
        """The rows of the blocks, of which some may lie outside the range."""
        return sum(block.rows for block in self.blocks)


def arranged(blocks: Sequence[StoredBlock]) -> list[StoredBlock | BlockMerge]:
    """Blocks in order, with overlapping blocks replaced by merges that order their rows."""
    entries: list[StoredBlock | BlockMerge] = []
    for overlapping in _apart(sorted(blocks, key=attrgetter("low"))):
        entries += overlapping if len(overlapping) == 1 else _merges(overlapping)
    return entries


def is_bearable(entries: Sequence[StoredBlock | BlockMerge]) -> bool:
    """Whether the merges read not much more than the stored bytes, and no range is large."""
    merges = [entry for entry in entries if isinstance(entry, BlockMerge)]
    merged = {id(block): block.length for merge in merges for block in merge.blocks}
    lengths = [merge.length for merge in merges]
    return (
        sum(lengths) <= MOST_READ * sum(merged.values())
        and max(lengths, default=0) <= MOST_RANGE_BYTES
    )


def parts_of(blocks: Sequence[StoredBlock], tasks: int) -> list[list[StoredBlock]]:
    """Adjacent blocks in parts, one for each writing task."""
    least, most = PART_BYTES
    room = min(max(sum(block.bytes for block in blocks) // max(tasks, 1), least), most)
    parts: list[list[StoredBlock]] = []
    size = room
    for block in blocks:
        if size >= room:
            parts.append([])
            size = 0
        parts[-1].append(block)
        size += block.bytes
    return parts


def _apart(blocks: Sequence[StoredBlock]) -> Iterator[list[StoredBlock]]:
    """Blocks, ascending by first row, in groups that do not overlap each other."""
    group: list[StoredBlock] = []
    high = KEY_BEFORE_ALL
    for block in blocks:
        if group and block.low > high:
            yield group
            group = []
        high = max(high, block.high)
        group.append(block)
    if group:
        yield group


def _merges(blocks: Sequence[StoredBlock]) -> Iterator[BlockMerge]:
    """The merges of blocks, ascending by first row, one range after the other."""
    inside: list[StoredBlock] = []
    low, length = blocks[0].low, 0
    for block in blocks:
        if length >= RANGE_BYTES and block.low > low:
            yield BlockMerge(low, block.low, tuple(inside))
            inside = [earlier for earlier in inside if earlier.high >= block.low]
            low, length = block.low, 0
        inside.append(block)
        length += block.length
    yield BlockMerge(low, None, tuple(inside))
