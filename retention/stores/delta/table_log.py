"""The log of a stream's Delta table, as far as it is asked whether there is a table; the rest is loaded for it."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.inventory import Counters
from retention.stores.delta import internals
from retention.stores.layout import Layout


@dataclass(frozen=True)
class DeltaTableLog:
    """Implements `TableLog`."""

    layout: Layout
    grace_ns: int
    vectors: bool = False
    """Whether a new table has deletion vectors."""

    def exists(self) -> bool:
        """Whether the table exists."""
        return exists(self.layout)

    def begin(self, now_ms: int) -> None:
        """Create the empty table; do nothing if it exists or a rival creates it at the same moment."""
        from retention.stores.delta.table import create

        create(self.layout, self.grace_ns, now_ms, vectors=self.vectors)

    def standing(self) -> tuple[bool, Counters]:
        """Whether the table has any file, and its counters."""
        from retention.stores.delta.table import read_handle

        handle, live = read_handle(self.layout)
        return bool(live.num_rows), handle.logged


@dataclass(frozen=True)
class FixedPlaces:
    """Implements `FilePlaces`: files keep their locations until VACUUM deletes them."""

    layout: Layout

    def staged(self, path: str) -> str:
        """The location of a file before its commit."""
        return self.layout.live(path)

    def find(self, path: str) -> str:
        """The location of a live file."""
        return self.layout.live(path)

    def trashed(self, path: str) -> None:
        """Return None: a removed file does not move."""


def exists(layout: Layout) -> bool:
    """Whether the table exists."""
    return any(name.endswith(".json") for name in internals.log_names(layout.messages))
