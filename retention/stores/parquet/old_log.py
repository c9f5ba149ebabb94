"""Old entries and listings of a Parquet stream's log, which a later listing replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout
from retention.stores.old_log import first_needed
from retention.stores.parquet.log import CommitState, ParquetLog
from retention.stores.parquet.settle_files import Places

WORTH_ENTRIES = 20
"""The minimum number of entries to replace by a listing."""


@dataclass(frozen=True)
class ParquetOldLog:
    """Implements `OldLog`."""

    layout: Layout
    version: int
    cutoff_ns: int
    """Entries written at that instant or later are kept, nanoseconds since the epoch."""

    def places(self) -> list[str]:
        """The files before the last old state; the newest state has its own listing, in case this one is damaged."""
        log = ParquetLog(self.layout)
        state = self._standing(log)
        return [] if state is None else log.places_before(state.version)

    def trim(self, old: Sequence[str]) -> None:
        """Write the listings that replace old entries, and delete these, while no file is moved."""
        if not old:
            return
        log = ParquetLog(self.layout)
        with Places(self.layout, log).at_rest() as state:
            for standing in (self._standing(log), state):
                if standing is not None and not log.has_list(standing.version):
                    log.write_list(standing)
            _forget_unfinished(self.layout, self.cutoff_ns)
            files.delete(old)
        reached(Step.LOG_TRIMMED)

    def _standing(self, log: ParquetLog) -> CommitState | None:
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
