"""A Delta stream's incremental inventory: the inventory cache and later log entries, without opening the table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from retention.core.inventory import DataFile, Inventory
from retention.core.read_count import ReadCount
from retention.engine_port import run_here
from retention.ports import VersionToken
from retention.schemas.bounds import MAX_TABLE_BYTES
from retention.stores.checks import duplicates, number_bounds
from retention.stores.checks import inventory as index
from retention.stores.delta.log_diff import Changes, changes
from retention.stores.describing import describe_missing
from retention.stores.layout import Layout
from retention.stores.sidecar.inventory_cache import InventoryCache, InventoryCacheFiles, LostError
from retention.stores.sidecar.inventory_incremental import (
    CachedInventory,
    changed_blocks,
    first_cache,
    moved_on,
)
from retention.stores.sidecar.stats_cache import StatisticsCache


class DeltaIncrementalInventory:
    """Writes a stream's inventory cache and brings it up to date."""

    def __init__(
        self,
        layout: Layout,
        cache: StatisticsCache,
        locate: Callable[[pa.Table], list[DataFile]],
        clock: Callable[[], int],
    ) -> None:
        self._layout = layout
        self._cache = cache
        self._locate = locate
        self._clock = clock
        self._files = InventoryCacheFiles(layout)

    def at(self, token: VersionToken) -> CachedInventory | None:
        """The inventory at a version token; None if the table must be opened.

        Raises:
            ForeignRowsError, DamagedError: a file added since then breaks the rules or cannot be read.
        """
        ledger = self._files.load()
        if ledger is None or ledger.token == token:
            return None if ledger is None else self._cached(ledger, ReadCount())
        diff = changes(self._layout, ledger.token, token)
        if diff is None:
            return None
        try:
            return self._moved(ledger, token, diff)
        except LostError:
            return None

    def keep(self, inventory: Inventory, token: VersionToken) -> None:
        """Rebuild the inventory cache from a complete inventory."""
        if inventory.files.num_rows:
            ledger, tables = first_cache(inventory, token)
            # Without the cache, the next pass is only slower.
            with suppress(OSError):
                self._files.write(ledger, tables)

    def _moved(self, ledger: InventoryCache, token: VersionToken, diff: Changes) -> CachedInventory:
        added, read = self._described(diff.logged)
        doubtful: list[pa.Table] = []

        def check(rows: pa.Table) -> None:
            doubtful.append(index.refuse_overlaps(self._layout.stream, rows))

        pieces = changed_blocks(ledger, diff, added, self._files.rows, check)
        for overlapping in doubtful:
            read += duplicates.refuse_duplicates(self._layout, overlapping, self._locate)
        moved = moved_on(ledger, token, diff, added)
        number_bounds.refuse_counters(self._layout, moved.counters)
        try:
            written = self._files.write(moved, pieces)
        except OSError as error:
            raise LostError from error
        if sum(block.bytes for block in written.blocks) > MAX_TABLE_BYTES:
            raise LostError
        self._cache.tidy(lambda: self._files.rows(written.blocks))
        return self._cached(written, read)

    def _described(self, logged: pa.Table) -> tuple[pa.Table, ReadCount]:
        """Full statistics of added files, from the cache or else from the files."""
        index.refuse_nulls(self._layout, logged)
        number_bounds.refuse_impossible(self._layout, logged)
        known, missing = self._cache.match(logged)
        described, read = describe_missing(
            self._layout, self._cache, missing, run_here, self._clock()
        )
        added = pa.concat_tables([known, described])
        number_bounds.refuse_impossible(self._layout, added)
        return added, read

    def _cached(self, ledger: InventoryCache, read: ReadCount) -> CachedInventory:
        return CachedInventory(self._layout.stream, ledger, self._files, read)
