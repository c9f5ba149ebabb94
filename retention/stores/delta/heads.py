"""Heads of a Delta table: versions that appends of this process made, known without the list of the table's files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retention.core.counters import Counters
from retention.ports import Snapshot, Swap
from retention.stores.checks import swap as swaps
from retention.stores.delta.table import DeltaHandle, without_files

if TYPE_CHECKING:
    from retention.stores.delta.store import DeltaStore


@dataclass(frozen=True)
class DeltaHead:
    """Implements `retention.ports.TableHead`."""

    store: DeltaStore
    counters: Counters
    """The effective counters; no file proves higher ones."""
    handle: DeltaHandle
    """The version, without its files."""

    @property
    def version(self) -> int:
        """The version."""
        return self.handle.table.version

    def append(self, swap: Swap) -> int:
        """Commit a swap that only adds files, from the next sequences on, as the next version; return it."""
        swaps.refuse_below(self.store.stream, swap, self.counters)
        return self.store.commit_on(swap, self.handle, self.counters)

    def after(self, run: str) -> DeltaHead | None:
        """The newest version, if the commit of `run` made it on this one; None: the table has to be opened.

        A commit writes the counters that files prove beyond the log, so the log's are the effective ones after it.
        """
        handle = self.store.next_handle(self.handle, run)
        if handle is None:
            return None
        return replace(self, handle=handle, counters=handle.logged)


def head_of(store: DeltaStore, snapshot: Snapshot) -> DeltaHead | None:
    """A snapshot without its files; None of a dropped stream, in which the files of other writers matter."""
    if snapshot.counters.dropped_ns:
        return None
    return DeltaHead(store, snapshot.counters, without_files(snapshot.handle))
