"""Old log entries of a table that a checkpoint or a full listing replaces, and their deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol


class OldLog(Protocol):
    """The log of a table up to one version. Implementations: `stores.delta.old_log`, `stores.parquet.old_log`.

    Later entries are ignored, so the result is the same before and after a commit.
    """

    def places(self) -> list[str]:
        """Locations of the files that `trim` would delete now, oldest first."""
        ...

    def trim(self, old: Sequence[str]) -> None:
        """Delete old files of the log, under the maintenance lease and after every interrupted run is settled.

        Args:
            old: locations that `places` has just returned.

        Raises:
            StorageError: the storage failed; the other files remain.
            BusyError: another process moves files of a Parquet stream and does not finish in time.
        """
        ...


def first_needed(entries: Mapping[int, int], states: Iterable[int], cutoff_ns: int) -> int | None:
    """The version of the state that replaces all old entries before it; None if no state replaces any.

    A state counts only if its own entry is old, too, so the entry before the first young one is always kept.

    Args:
        entries: version → storage time of the existing entries, nanoseconds since the epoch.
        states: versions of complete, readable states (a checkpoint, a listing).
        cutoff_ns: entries that were written at that instant or later are young.
    """
    newest = max(entries, default=-1)
    first_young = min((v for v, at_ns in entries.items() if at_ns >= cutoff_ns), default=newest + 1)
    state = max((v for v in states if v < first_young and v in entries), default=None)
    return None if state is None or state <= min(entries) else state
