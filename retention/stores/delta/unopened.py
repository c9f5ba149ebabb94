"""A stream's Delta table that is opened when somebody needs its files."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from retention.ports import TableStore
from retention.stores.delta.table_log import log_of
from retention.stores.layout import Layout, StoreSettings
from retention.stores.logged_table import LoggedTable


class UnopenedDeltaTable(LoggedTable):
    """Implements `retention.ports.UnopenedTable`."""

    def __init__(self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]) -> None:
        super().__init__(layout, settings, log_of(layout, settings))
        self._clock = clock
        self._store: TableStore | None = None
        self._opening_store = Lock()

    def store(self) -> TableStore:
        """The table to read and write; Arrow is loaded for it."""
        with self._opening_store:
            if self._store is None:
                from retention.stores.delta.store import DeltaStore

                self._store = DeltaStore(self._layout, self._settings, self._clock)
            return self._store
