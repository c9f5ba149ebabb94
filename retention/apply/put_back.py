"""Restoring the files that a run removed, in place of its copies, and the rows that it hid."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.bring_back import ComingBack
from retention.apply.foreign_changes import UndoCheck, back_under_other_names
from retention.context.context import OpenedStream
from retention.core.table_requirements import RowsCompared
from retention.errors import ForeignRowsError
from retention.history.record import RunRecord
from retention.plan.run_ranges import ranges_of_files
from retention.ports import Snapshot
from retention.stores.checks import duplicates, inventory
from retention.stores.checks import swap as swaps
from retention.stores.layout import Layout
from retention.stores.row_tombstones import no_row_tombstones
from schemas.files import TOMBSTONED_STATS


def put_back(undoing: UndoCheck) -> ComingBack:
    """The files that a run removed, in place of its copies; the rows that it hid are shown again."""
    compared = compare_rows(undoing)
    released = _record_before(undoing.opened, undoing.snapshot, undoing.outcome)
    markers = ranges_of_files(undoing.markers, {}, [], no_row_tombstones())
    return ComingBack(undoing.removed, undoing.added, released, markers, compared)


def recorded_anew(opened: OpenedStream, outcome: RunRecord) -> pa.Table:
    """The files of both records of released ranges in which a run changed the hidden rows, shape `TOMBSTONED_STATS`."""
    if outcome.released is None:
        return TOMBSTONED_STATS.empty_table()
    before, after = (opened.store.released(number).files for number in outcome.released)
    return pa.concat_tables([_without(before, after), _without(after, before)])


def _without(record: pa.Table, other: pa.Table) -> pa.Table:
    """The rows of one record that the other lacks."""
    columns = ["path", "messages"]
    both = [pc.binary_join_element_wise(*_texts(table, columns), "/") for table in (record, other)]
    return record.filter(pc.invert(pc.is_in(both[0], value_set=both[1].combine_chunks())))


def _texts(record: pa.Table, columns: list[str]) -> list[pa.ChunkedArray]:
    return [record[name].cast(pa.string()) for name in columns]


def _record_before(opened: OpenedStream, snapshot: Snapshot, outcome: RunRecord) -> tuple[int, int]:
    """The numbers of two records of released ranges: the current one, and one that hides what it hid before the run."""
    number = snapshot.counters.released
    touched = recorded_anew(opened, outcome)["path"].combine_chunks()
    if outcome.released is None or not len(touched):
        return number, number
    now, before = opened.store.released(number), opened.store.released(outcome.released[0])
    others = pc.invert(pc.is_in(now.files["path"], value_set=touched)).to_numpy()
    again = pc.is_in(before.files["path"], value_set=touched).to_numpy()
    return number, opened.store.keep_released(chain(now.tables(others), before.tables(again)))


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
