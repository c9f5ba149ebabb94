"""A stream's newest state from the inventory cache, updated by later changes in the log."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counters import Counters
from retention.core.inventory import Inventory
from retention.core.prefix import Prefix, TailTotals
from retention.core.read_count import ReadCount
from retention.ports import VersionToken
from retention.stores.checks import inventory as index
from retention.stores.delta.log_diff import Changes
from retention.stores.sidecar.inventory_cache import (
    InventoryCache,
    InventoryCacheFiles,
    LostError,
    PackedBlock,
    blocks_of,
)

Place = tuple[int, int]
"""Partition and segment."""


@dataclass(frozen=True)
class CachedInventory:
    """Implements `retention.ports.IncrementalInventory`."""

    stream: str
    ledger: InventoryCache
    source: InventoryCacheFiles
    read: ReadCount
    """The cost of updating the cache."""

    def head(self, files: int) -> Prefix | None:
        """The oldest segments, with at least `files` files; None if the cached rows are damaged."""
        blocks = self.ledger.blocks
        if len({block.partition for block in blocks}) > 1:
            files = sum(block.files for block in blocks)
        count, taken = 0, 0
        while count < files and taken < len(blocks):
            count += blocks[taken].files
            taken += 1
        try:
            rows = self.source.rows(blocks[:taken])
        except LostError:
            return None
        rest = blocks[taken:]
        later = TailTotals(
            segments=sum(block.segments for block in rest),
            messages=sum(block.messages for block in rest),
            bytes=sum(block.bytes for block in rest),
        )
        ledger = self.ledger
        inventory = Inventory(
            self.stream, ledger.table_id, ledger.token.version, rows, ledger.counters, self.read
        )
        return Prefix(inventory, later)


def first_cache(inventory: Inventory, token: VersionToken) -> tuple[InventoryCache, list[pa.Table]]:
    """The cache of a complete inventory, still without blocks, and the tables that become its blocks."""
    counters = inventory.counters
    ledger = InventoryCache(
        token,
        inventory.table_id,
        dict(counters.next_seq),
        dict(counters.open_base),
        (),
        counters.epoch,
    )
    return ledger, blocks_of(inventory.files)


def moved_on(
    ledger: InventoryCache, token: VersionToken, changes: Changes, added: pa.Table
) -> InventoryCache:
    """The cache's head at a later version: counters raised by the log and by the added files."""
    logged = Counters(
        _highest(ledger.next_seq, changes.counters["next_seq"]),
        _highest(ledger.open_base, changes.counters["open_base"]),
    )
    proved = index.effective(logged, added)
    return replace(
        ledger,
        token=token,
        next_seq={**logged.next_seq, **proved.next_seq},
        open_base={**logged.open_base, **proved.open_base},
    )


def changed_blocks(
    ledger: InventoryCache,
    changes: Changes,
    added: pa.Table,
    rows_of: Callable[[Sequence[PackedBlock]], pa.Table],
    check: Callable[[pa.Table], None],
) -> list[PackedBlock | pa.Table]:
    """The cache's blocks after changes: unchanged ones as blocks, the others as tables.

    Args:
        ledger: the state before.
        changes: the changes since.
        added: the added files with full statistics, shape `FILE_STATS`.
        rows_of: reads blocks.
        check: checks sorted rows against the storage rules.

    Raises:
        LostError: the changes do not fit the cache; the table itself must be opened.
    """
    firsts = [(block.partition, block.first_segment) for block in ledger.blocks]
    leaving: defaultdict[int, set[str]] = defaultdict(set)
    for path, place in (changes.removed | changes.passing).items():
        leaving[_block_of(firsts, place)].add(path)
    coming: defaultdict[int, list[int]] = defaultdict(list)
    for number, place in enumerate(_places(added)):
        coming[_block_of(firsts, place)].append(number)
    pieces: list[PackedBlock | pa.Table] = list(ledger.blocks)
    missed = set(changes.removed)
    for at in sorted(leaving.keys() | coming.keys(), reverse=True):
        rows = rows_of(ledger.blocks[at : at + 1])
        new = added.take(pa.array(coming[at], pa.int64()))
        gone = leaving[at] | set(new["path"].to_pylist())
        going = pc.is_in(rows["path"], value_set=pa.array(sorted(gone), pa.string()))
        missed -= set(rows["path"].filter(going).to_pylist())
        rows = index.in_order(pa.concat_tables([rows.filter(pc.invert(going)), new]))
        check(rows)
        pieces[at : at + 1] = blocks_of(rows)
    if missed:
        raise LostError
    _refuse_touching(pieces)
    return pieces


def _refuse_touching(pieces: Iterable[PackedBlock | pa.Table]) -> None:
    """Refuse blocks that are no longer ascending, or with a sequence that reaches into a later block's segments."""
    before, reach = (-1, -1), -1
    for piece in pieces:
        if isinstance(piece, PackedBlock):
            first, highest = (piece.partition, piece.first_segment), piece.max_seq
        else:
            first, highest = next(_places(piece)), pc.max(piece["max_seq"]).as_py()
        if first[0] != before[0]:
            reach = -1
        if first <= before or reach >= first[1]:
            raise LostError
        before, reach = first, max(reach, highest)


def _block_of(firsts: Sequence[Place], place: Place) -> int:
    return max(bisect_right(firsts, place) - 1, 0)


def _places(rows: pa.Table) -> Iterator[Place]:
    return zip(rows["partition"].to_pylist(), rows["segment"].to_pylist(), strict=True)


def _highest(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    return {key: max(first.get(key, 0), second.get(key, 0)) for key in first.keys() | second.keys()}
