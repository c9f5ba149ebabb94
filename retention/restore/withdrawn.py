"""Delete markers that undone passes had written: an undo withdrew them, and copies of their files still hold them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.exact_ranges import has_holes, without_holes
from retention.context.context import OpenedStream
from retention.core.inventory import NO_RANGES
from retention.core.seq_ranges import union_of_ranges
from retention.core.spans import Array
from retention.errors import DamagedError
from retention.history.kinds import Undone
from retention.history.runs import history_of
from retention.inspect.taken import Taken
from retention.plan.run_ranges import sequences_of

_log = logging.getLogger(__name__)


def withdrawn_markers(opened: OpenedStream, epoch: int) -> Mapping[int, Array]:
    """Partition → the sequences of withdrawn markers, as ascending, disjoint, inclusive ranges, shape (n, 2).

    Markers are missing here if their file is gone and no record has their sequences, or if the record of the undo is
    damaged, which is logged: a restore of too many messages is better than none.

    Args:
        opened: the stream.
        epoch: the present epoch of its counters.
    """
    withdrawn: dict[int, Array] = {}
    for rows in _rows(opened, epoch):
        for partition in rows["partition"].unique().to_pylist():
            here = rows.filter(pc.equal(rows["partition"], partition))
            before = withdrawn.get(partition, NO_RANGES)
            withdrawn[partition] = union_of_ranges(before, sequences_of(here))
    return withdrawn


def _rows(opened: OpenedStream, epoch: int) -> Iterator[pa.Table]:
    history = history_of(opened.warehouse, opened.name)
    undos = [
        record.run
        for record in history.outcomes()
        if isinstance(record, Undone)
        and record.may_count
        and history.continuing(record.epoch)[-1] == epoch
    ]
    if not undos:
        return
    taken = Taken(opened)
    for run in undos:
        try:
            yield from _rows_of(opened, taken, run)
        except DamagedError as error:
            _log.warning(
                "%s: delete markers that undo %s withdrew may come back: %s",
                opened.name,
                run,
                error,
            )


def _rows_of(opened: OpenedStream, taken: Taken, run: str) -> Iterator[pa.Table]:
    ranges = taken.of_run(run)
    if ranges is not None and ranges.is_exact:
        for rows in without_holes(opened, ranges.tables()):
            yield rows.filter(pc.invert(has_holes(rows)))
