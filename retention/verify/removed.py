"""The sequences that no live file may have, because runs removed them and nothing brought them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import NO_RANGES
from retention.core.seq_ranges import difference_of_ranges, merged_ranges, union_of_ranges
from retention.history.kinds import Undone
from retention.history.record import RunRecord
from retention.inspect.taken import Taken
from retention.plan.run_ranges import sequences_of
from retention.schemas.runs import RUN_RANGES

Ranges = dict[int, np.ndarray]
"""Partition → ascending, disjoint ranges of sequences, shape (n, 2)."""


def removed_sequences(taken: Taken, standing: Sequence[RunRecord], renewal: str) -> Ranges:
    """The sequences that runs removed; only ranges without gaps: of others, a split file may have had the rest.

    Args:
        taken: the messages that runs removed.
        standing: the runs whose removals must still show, newest first.
        renewal: the last restore from an archive, or repair of sequences; empty: there was none.

    Raises:
        DamagedError: a record, or a file of evidence, differs from what was written.
    """
    removed: Ranges = {}
    for record in reversed(standing):
        if isinstance(record, Undone) and renewal:
            removed = _without_undone(taken, removed, record.undoes)
        of_run = taken.of_run(record.run) if record.removed_messages else None
        if of_run is not None and of_run.is_exact:
            for rows in of_run.tables():
                dense = _without_gaps(rows.select(RUN_RANGES.names))
                for partition, ranges in _by_partition(dense):
                    known = removed.get(partition, NO_RANGES)
                    removed[partition] = union_of_ranges(known, ranges)
    return removed


def _without_undone(taken: Taken, removed: Mapping[int, np.ndarray], run: str) -> Ranges:
    """Removed sequences that the undo of a run did not bring back; none if it is unknown.

    A renewal, or an undo after it, may have brought the same messages back, which another run then removed once more.
    """
    of_run = taken.of_run(run)
    if of_run is None:
        return {}
    left = dict(removed)
    for rows in of_run.tables():
        for partition, ranges in _by_partition(rows.select(RUN_RANGES.names)):
            left[partition] = difference_of_ranges(left.get(partition, NO_RANGES), ranges)
    return left


def _by_partition(rows: pa.Table) -> Iterator[tuple[int, np.ndarray]]:
    """Each partition of rows of shape `RUN_RANGES` with its ranges of sequences."""
    for partition in rows["partition"].unique().to_pylist():
        inside = rows.filter(pc.equal(rows["partition"], partition))
        yield partition, merged_ranges(sequences_of(inside))


def _without_gaps(rows: pa.Table) -> pa.Table:
    """The ranges with a message at each sequence, exceptions aside."""
    excepted = [
        sum(last - first + 1 for first, last in zip(firsts, lasts, strict=True))
        for firsts, lasts in zip(
            rows["except_firsts"].to_pylist(), rows["except_lasts"].to_pylist(), strict=True
        )
    ]
    width = rows["last_seq"].to_numpy() - rows["first_seq"].to_numpy() + 1 - np.array(excepted, int)
    return rows.filter(pa.array(rows["messages"].to_numpy() == width))
