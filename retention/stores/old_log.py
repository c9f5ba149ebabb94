"""Log entries of a table that a checkpoint or a full list stands for, and that are old enough to be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.delta import counters, internals
from retention.stores.layout import Layout
from retention.stores.parquet.log import ParquetLog, State
from retention.stores.parquet.settle_files import Places

WORTH_ENTRIES = 20
"""The number of entries of a Parquet log that have to go for a list to be written in their place."""


def first_needed(entries: Mapping[int, int], states: Iterable[int], cutoff_ns: int) -> int | None:
    """The version of the state that stands for all old entries before it; None: no state stands for any.

    A state counts only if its own entry is old as well: so the entry before the first young one always stays.

    Args:
        entries: version → storage time of the entries that are there, nanoseconds since the epoch.
        states: versions of whole states (a checkpoint, a list) that can be read.
        cutoff_ns: entries that were written at that instant or later are young.
    """
    newest = max(entries, default=-1)
    first_young = min((v for v, at_ns in entries.items() if at_ns >= cutoff_ns), default=newest + 1)
    state = max((v for v in states if v < first_young and v in entries), default=None)
    return None if state is None or state <= min(entries) else state


def old_entries(layout: Layout, format_: str, cutoff_ns: int) -> list[str]:
    """Locations of the files of a log that `trim` would delete by now, the oldest first.

    Args:
        layout: the stream's, whose table exists.
        format_: the table's.
        cutoff_ns: entries that were written at that instant or later are young, nanoseconds since the epoch.
    """
    if format_ == "delta":
        return _old_of_delta(layout, cutoff_ns)
    return _old_of_parquet(ParquetLog(layout), cutoff_ns)


def trim(layout: Layout, format_: str, old: Sequence[str], cutoff_ns: int) -> None:
    """Delete old entries of a log, under the maintenance lease and with every interrupted run settled.

    Args:
        layout: the stream's.
        format_: the table's.
        old: locations that `old_entries` has just returned.
        cutoff_ns: as there.

    Raises:
        StorageError: the storage failed; what was not deleted stays.
        BusyError: another process moves files of a Parquet stream, and does not end.
    """
    if not old:
        return
    if format_ == "delta":
        # The oldest first: what a kill leaves has no hole.
        files.delete(old)
    else:
        log = ParquetLog(layout)
        with Places(layout, log).at_rest() as state:
            for standing in (_standing(log, cutoff_ns), state):
                if standing is not None and not log.has_list(standing.version):
                    log.write_list(standing)
            _forget_unfinished(layout, cutoff_ns)
            files.delete(old)
    reached(Step.LOG_TRIMMED)


def _old_of_delta(layout: Layout, cutoff_ns: int) -> list[str]:
    """The files before the newest checkpoint that is old, whole and readable (Delta protocol, metadata cleanup)."""
    entries, _ = internals.log_times(layout.messages)
    newest = max(entries, default=-1)
    for version, places in internals.whole_checkpoints(layout.messages, newest):
        stands = first_needed(entries, [version], cutoff_ns) is not None
        if stands and counters.is_readable(places):
            return internals.log_places(layout.messages, version)
    return []


def _old_of_parquet(log: ParquetLog, cutoff_ns: int) -> list[str]:
    """The files before the state that is to stand for them, beside the newest one's list."""
    state = _standing(log, cutoff_ns)
    return [] if state is None else log.places_before(state.version)


def _standing(log: ParquetLog, cutoff_ns: int) -> State | None:
    """The last state that is old and not the newest; where it cannot be read, that of a list; None: it is not worth it.

    The newest state has a list of its own: one that is damaged later loses nothing.
    """
    entries, lists = log.times()
    earlier = {version: at_ns for version, at_ns in entries.items() if version < max(entries)}
    last = _worth(earlier, earlier, cutoff_ns)
    if last is None:
        return None
    with suppress(DamagedError):
        return log.read(last)
    listed = _worth(earlier, filter(log.has_list, lists), cutoff_ns)
    return None if listed is None else log.read(listed)


def _worth(entries: Mapping[int, int], states: Iterable[int], cutoff_ns: int) -> int | None:
    """The version of the state for which `first_needed` lets enough entries go."""
    needed = first_needed(entries, states, cutoff_ns)
    if needed is None or sum(version < needed for version in entries) < WORTH_ENTRIES:
        return None
    return needed


def _forget_unfinished(layout: Layout, cutoff_ns: int) -> None:
    """Delete old entries that were never linked: who stood still must not link one where a deleted one was."""
    directory = layout.engine_path("log")
    for name in files.walk(directory):
        place = files.join(directory, name)
        with suppress(FileNotFoundError):
            if name.endswith(".tmp") and files.stat(place)[1] * 1_000_000 < cutoff_ns:
                files.delete([place])
