"""Old log entries of a table that a checkpoint or a full listing replaces, and their deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.delta import counters, internals
from retention.stores.layout import Layout
from retention.stores.parquet.log import ParquetLog, State
from retention.stores.parquet.settle_files import Places

WORTH_ENTRIES = 20
"""The minimum number of entries of a Parquet log to replace by a listing."""


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


@dataclass(frozen=True)
class OldLog:
    """The log of a table at one version, and the cutoff of its young entries."""

    layout: Layout
    format_: str
    version: int
    """Later entries are ignored, so the result is the same before and after a commit."""
    cutoff_ns: int
    """Entries written at that instant or later are kept, nanoseconds since the epoch."""

    def places(self) -> list[str]:
        """Locations of the files that `trim` would delete now, oldest first."""
        if self.format_ == "delta":
            return self._old_of_delta()
        # The newest state has its own listing, so later damage to this one loses nothing.
        log = ParquetLog(self.layout)
        state = self._standing(log)
        return [] if state is None else log.places_before(state.version)

    def trim(self, old: Sequence[str]) -> None:
        """Delete old files of the log, under the maintenance lease and after every interrupted run is settled.

        Args:
            old: locations that `places` has just returned.

        Raises:
            StorageError: the storage failed; the other files remain.
            BusyError: another process moves files of a Parquet stream and does not finish in time.
        """
        if not old:
            return
        if self.format_ == "delta":
            # Oldest first: a kill leaves no gap.
            files.delete(old)
        else:
            log = ParquetLog(self.layout)
            with Places(self.layout, log).at_rest() as state:
                for standing in (self._standing(log), state):
                    if standing is not None and not log.has_list(standing.version):
                        log.write_list(standing)
                _forget_unfinished(self.layout, self.cutoff_ns)
                files.delete(old)
        reached(Step.LOG_TRIMMED)

    def _old_of_delta(self) -> list[str]:
        """The files before the newest old, complete and readable checkpoint (Delta protocol, metadata cleanup)."""
        messages = self.layout.messages
        entries, _ = internals.log_times(messages)
        for version, places in internals.whole_checkpoints(messages, self.version):
            stands = first_needed(entries, [version], self.cutoff_ns) is not None
            if stands and counters.is_readable(places):
                return internals.log_places(messages, version)
        return []

    def _standing(self, log: ParquetLog) -> State | None:
        """The last old state, or that of a listing if it cannot be read; None if too few entries would be deleted."""
        entries, lists = log.times()
        earlier = {version: at_ns for version, at_ns in entries.items() if version < self.version}
        last = _worth(earlier, earlier, self.cutoff_ns)
        if last is None:
            return None
        with suppress(DamagedError):
            return log.read(last)
        listed = _worth(earlier, filter(log.has_list, lists), self.cutoff_ns)
        return None if listed is None else log.read(listed)


def _worth(entries: Mapping[int, int], states: Iterable[int], cutoff_ns: int) -> int | None:
    """The version from `first_needed`, if enough entries precede it."""
    needed = first_needed(entries, states, cutoff_ns)
    if needed is None or sum(version < needed for version in entries) < WORTH_ENTRIES:
        return None
    return needed


def _forget_unfinished(layout: Layout, cutoff_ns: int) -> None:
    """Delete old unlinked entries: a paused writer must not link one in place of a deleted entry."""
    directory = layout.engine_path("log")
    for name in files.walk(directory):
        place = files.join(directory, name)
        with suppress(FileNotFoundError):
            if name.endswith(".tmp") and files.stat(place)[1] * 1_000_000 < cutoff_ns:
                files.delete([place])
