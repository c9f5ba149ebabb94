"""Records, notes and directories beside a stream's table that nothing needs any more."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from retention.apply.reclaim.survey import Survey
from retention.core.reclaim import DeadFile, spent_records
from retention.history.runs import history_of
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout
from retention.stores.row_tombstones import RowTombstoneRecords

_SEGMENT = re.compile(r"partition=(\d+)/segment=(\d+)")
_BESIDE = ("staging", "trash", "subjects")


def spent_tombstones(looked: Survey, spared: Collection[str] = ()) -> list[str]:
    """Locations of the records of row tombstones that no version within the grace names, nor a run that can be undone.

    Args:
        looked: the look at the stream.
        spared: paths that stay after all, and with them the records of their runs.

    Raises:
        DamagedError: an entry of the log, or of the run history, cannot be read.
    """
    opened = looked.opened
    records = RowTombstoneRecords(Layout(opened.root, opened.name))
    written, in_force = records.written(), looked.snapshot.counters.released
    if not spent_records(written, in_force, (), looked.cutoff_ns):
        return []
    named = looked.dead_files.tombstones(looked.cutoff_ns)
    if named is None:
        return []
    needed = named | _of_runs(looked, spared)
    return records.places(spent_records(written, in_force, needed, looked.cutoff_ns))


def _of_runs(looked: Survey, spared: Collection[str]) -> set[int]:
    """The numbers of the records that runs changed whose records of files stay, and those under way."""
    opened, going = looked.opened, set(looked.records(spared))
    history = history_of(opened.warehouse, opened.name)
    staying = {run.run for run in looked.runs if not going.issuperset(run.records)}
    outcomes = (
        history.done(run) or history.begun(run) for run in staying.union(history.unfinished())
    )
    return {number for record in outcomes if record for number in record.released or ()}


def delete_spent(locations: Collection[str]) -> None:
    """Delete records and notes that nothing needs any more."""
    if locations:
        files.delete(locations)
        reached(Step.SPENT_DELETED)


def remove_emptied(layout: Layout, dead: Iterable[DeadFile], open_base: Mapping[int, int]) -> None:
    """Remove the directories of sealed segments in which dead files lay, where nothing is left in them.

    An appender goes on in the open segment, whose directories stay. Whoever writes into a sealed one makes its
    directory at that moment.

    Args:
        layout: the stream's places; on an object store there are no directories.
        dead: files that are gone.
        open_base: partition → the base of its open segment.
    """
    if files.is_remote(layout.root):
        return
    for directory in sorted({file.path.rpartition("/")[0] for file in dead}):
        parts = _SEGMENT.fullmatch(directory)
        if parts is None or int(parts[2]) >= open_base.get(int(parts[1]), 0):
            continue
        if files.remove_directory(layout.live(directory)):
            for kind in _BESIDE:
                files.remove_directory(layout.engine_path(kind, directory))
