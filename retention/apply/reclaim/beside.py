"""Records, notes and directories beside a stream's table that are no longer needed."""

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
    """Locations of the records of row tombstones named neither by a version within the grace nor by an undoable run.

    Args:
        looked: the survey of the stream.
        spared: paths that are kept after all, together with the records of their runs.

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
    """The numbers of row-tombstone records written by runs whose file records are kept, and by unfinished runs."""
    opened, going = looked.opened, set(looked.records(spared))
    history = history_of(opened.warehouse, opened.name)
    staying = {run.run for run in looked.runs if not going.issuperset(run.records)}
    outcomes = (
        history.done(run) or history.begun(run) for run in staying.union(history.unfinished())
    )
    return {number for record in outcomes if record for number in record.released or ()}


def delete_spent(locations: Collection[str]) -> None:
    """Delete records and notes that are no longer needed."""
    if locations:
        files.delete(locations)
        reached(Step.SPENT_DELETED)


def remove_emptied(layout: Layout, dead: Iterable[DeadFile], open_base: Mapping[int, int]) -> None:
    """Remove the empty directories of sealed segments that contained dead files.

    Appends go to the open segment, whose directories are kept. A writer to a sealed one creates its directory again.

    Args:
        layout: the stream's layout; an object store has no directories.
        dead: deleted files.
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
