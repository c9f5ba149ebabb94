"""Log entries of a table that a checkpoint or a full list stands for, and that are old enough to be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from deltalake.exceptions import DeltaError

from retention.errors import StorageError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import first_line
from retention.stores.delta import internals
from retention.stores.delta.table import open_table
from retention.stores.layout import Layout
from retention.stores.parquet.log import ParquetLog, State
from retention.stores.parquet.settle_files import Places

WORTH_ENTRIES = 20
"""The number of old entries of a Parquet log below which none is deleted."""


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
        _clean_up(layout)
    else:
        with Places(layout, ParquetLog(layout)).at_rest() as state:
            _write_list(ParquetLog(layout), state)
            _forget_unfinished(layout, cutoff_ns)
            # The oldest first: what a kill leaves has no hole.
            files.delete(old)
    reached(Step.LOG_TRIMMED)


def _clean_up(layout: Layout) -> None:
    """Have deltalake delete what a checkpoint stands for and `delta.logRetentionDuration` does not keep."""
    try:
        open_table(layout).cleanup_metadata()
    except (DeltaError, OSError) as error:
        raise StorageError(
            f"{layout.messages}: old entries of the log could not be deleted ({first_line(error)}); the table is "
            "sound; try again"
        ) from error


def _old_of_delta(layout: Layout, cutoff_ns: int) -> list[str]:
    entries, _ = internals.log_times(layout.messages)
    newest = max(entries, default=-1)
    whole = [number for number, _ in internals.whole_checkpoints(layout.messages, newest)]
    needed = first_needed(entries, whole, cutoff_ns)
    return [] if needed is None else internals.log_places(layout.messages, needed)


def _old_of_parquet(log: ParquetLog, cutoff_ns: int) -> list[str]:
    """The files before the newest list but one that can be read: a list that is damaged later loses nothing."""
    entries, lists = log.times()
    if sum(1 for at_ns in entries.values() if at_ns < cutoff_ns) < WORTH_ENTRIES:
        return []
    # The newest state gets a list if it has none.
    older = (version for version in sorted(lists, reverse=True) if version < max(entries))
    base = next((version for version in older if log.has_list(version)), None)
    needed = None if base is None else first_needed(entries, [base], cutoff_ns)
    return [] if needed is None else log.places_before(needed)


def _write_list(log: ParquetLog, state: State) -> None:
    if not log.has_list(state.version):
        log.write_list(state)


def _forget_unfinished(layout: Layout, cutoff_ns: int) -> None:
    """Delete old entries that were never linked: who stood still must not link one where a deleted one was."""
    directory = layout.engine_path("log")
    for name in files.walk(directory):
        place = files.join(directory, name)
        with suppress(FileNotFoundError):
            if name.endswith(".tmp") and files.stat(place)[1] * 1_000_000 < cutoff_ns:
                files.delete([place])
