"""Restoring the files that a run removed, in place of its copies."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.bring_back import ComingBack
from retention.apply.foreign_changes import UndoCheck, back_under_other_names
from retention.core.table_requirements import RowsCompared
from retention.errors import ForeignRowsError, RefusedError
from retention.plan.run_ranges import ranges_of_files
from retention.stores.checks import duplicates, inventory
from retention.stores.checks import swap as swaps
from retention.stores.layout import Layout
from retention.stores.row_tombstones import LAST_BUILD, tombstoned_paths


def put_back(undoing: UndoCheck) -> ComingBack:
    """The files that a run removed, in place of its copies."""
    compared = compare_rows(undoing)
    markers = ranges_of_files(undoing.markers, {}, [])
    return ComingBack(undoing.removed, undoing.added, markers, compared)


def refuse_undo_of_released(undoing: UndoCheck) -> None:
    """Refuse to undo a run that read or changed row tombstones of an earlier build.

    Raises:
        RefusedError: the run's files hold messages that were released before it, or it released messages in files
            that it kept.
        DamagedError: the current record of row tombstones cannot be read.
    """
    layout = Layout(undoing.opened.root, undoing.opened.name)
    hidden = tombstoned_paths(layout, undoing.snapshot.counters.released)
    meets = pc.any(pc.is_in(undoing.removed["path"], value_set=hidden), min_count=0).as_py()
    if undoing.outcome.released is not None or meets:
        raise RefusedError(
            f"{undoing.opened.name}: an earlier build released messages in the files of run {undoing.run} without "
            "rewriting them, and this one cannot tell those messages from the others; nothing was changed; undo it "
            f"with commit {LAST_BUILD} of this project"
        )


def compare_rows(undoing: UndoCheck) -> list[RowsCompared]:
    """Compare rows where ranges of restored files overlap those of kept files, as files of one shuffle do.

    Returns:
        The kept files whose rows were compared with the restored ones; empty if no ranges overlap.

    Raises:
        RefusedError: a message to restore is in the table again.
    """
    opened, snapshot, removed = undoing.opened, undoing.snapshot, undoing.removed
    added = undoing.added
    stays = pc.invert(pc.is_in(snapshot.files["path"], value_set=added["path"].combine_chunks()))
    rest = snapshot.files.filter(stays)
    partitions = removed["partition"].unique().to_pylist()
    if not any(_meets(removed, rest, partition) for partition in partitions):
        return []
    live = opened.store.inventory(snapshot).files
    live = live.filter(pc.is_in(live["path"], value_set=rest["path"].combine_chunks()))
    together = inventory.in_order(pa.concat_tables([live, removed.cast(live.schema)]))
    overlaps = inventory.refuse_overlaps(opened.name, together)
    layout = Layout(opened.root, opened.name)
    try:
        duplicates.refuse_duplicates(layout, overlaps, opened.store.data_files)
    except ForeignRowsError as error:
        # The table's inventory was already checked against the rules: a duplicate here is a message to restore.
        raise back_under_other_names(undoing) from error
    return [RowsCompared(live["path"].combine_chunks())]


def _meets(removed: pa.Table, rest: pa.Table, partition: int) -> bool:
    back, there = (
        table.filter(pc.equal(table["partition"], partition)) for table in (removed, rest)
    )
    return any(True for _ in swaps.overlapping(back, there, back.slice(0, 0)))
