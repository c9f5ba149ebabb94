"""Blocks of rows that lie in files: which of them are in order one behind the other, and how the others are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from retention.core.row_order import KEY_BEFORE_ALL, Key

RANGE_BYTES = 64 << 20
"""Stored bytes that one merge brings together, about."""
MOST_RANGE_BYTES = 8 * RANGE_BYTES
PART_BYTES = 16 << 20, 128 << 20
"""Bytes of rows that one task writes, at least and at most; between them each task of a cluster gets its share."""
MOST_READ = 4
"""A merge reads whole blocks for rows of a range; how often the blocks may be read, on average."""


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """Rows in order, in a file of blocks."""

    location: str
    offset: int
    narrow: int
    """Bytes of what a layer needs of each row, at the beginning."""
    length: int
    """Bytes of all that."""
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


@dataclass(frozen=True)
class Merge:
    """A range of keys, and the blocks that have rows of it."""

    low: Key
    """The lowest key."""
    end: Key | None
    """The first key behind; None: there is none."""
    blocks: tuple[StoredBlock, ...]

    @property
    def length(self) -> int:
        """The bytes to read."""
        return sum(block.length for block in self.blocks)


def arranged(blocks: Sequence[StoredBlock]) -> list[StoredBlock | Merge]:
    """Blocks in order, and in the place of those that overlap the merges that bring their rows into order."""
    entries: list[StoredBlock | Merge] = []
    for overlapping in _apart(sorted(blocks, key=attrgetter("low"))):
        entries += overlapping if len(overlapping) == 1 else _merges(overlapping)
    return entries


def is_bearable(entries: Sequence[StoredBlock | Merge]) -> bool:
    """Whether merging reads little more than there is, and no range is large."""
    merges = [entry for entry in entries if isinstance(entry, Merge)]
    merged = {id(block): block.length for merge in merges for block in merge.blocks}
    lengths = [merge.length for merge in merges]
    return (
        sum(lengths) <= MOST_READ * sum(merged.values())
        and max(lengths, default=0) <= MOST_RANGE_BYTES
    )


def parts_of(blocks: Sequence[StoredBlock], tasks: int) -> list[list[StoredBlock]]:
    """Neighbouring blocks in parts that one task writes each."""
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
    """Blocks, which rise by their first rows, in groups of which no two overlap."""
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


def _merges(blocks: Sequence[StoredBlock]) -> Iterator[Merge]:
    """The merges of blocks, which rise by their first rows, one range behind the other."""
    inside: list[StoredBlock] = []
    low, length = blocks[0].low, 0
    for block in blocks:
        if length >= RANGE_BYTES and block.low > low:
            yield Merge(low, block.low, tuple(inside))
            inside = [earlier for earlier in inside if earlier.high >= block.low]
            low, length = block.low, 0
        inside.append(block)
        length += block.length
    yield Merge(low, None, tuple(inside))
