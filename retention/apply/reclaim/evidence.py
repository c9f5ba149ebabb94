"""Evidence of runs whose records a reclaim deletes: read from those records, and folded before they go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from retention.apply.reclaim.claim import Deletion
from retention.apply.reclaim.survey import Survey
from retention.apply.run_evidence import recorded
from retention.apply.undo_records import find_ranges
from retention.context.context import OpenedStream
from retention.context.run_files import RANGES, undo_location
from retention.errors import DamagedError
from retention.evidence.fold import fold_evidence
from retention.evidence.months import evidence_directory
from retention.history.record import RunRecord
from retention.history.runs import history_of
from schemas.evidence import EVIDENCE


@dataclass(frozen=True)
class _Reclaimed:
    """The end of a run's undo: when, and by which reclaim."""

    at_ns: int
    by: str | None


def refuse_unreadable(looked: Survey) -> None:
    """Refuse to reclaim where evidence would be lost, before anything is deleted.

    Raises:
        DamagedError: the record of the sequences that a run took is not what was written.
    """
    opened = looked.opened
    for run in looked.spent():
        try:
            find_ranges(opened, run.run)
        except DamagedError as error:
            raise DamagedError(
                f"{undo_location(opened, run.run, RANGES)}: the record of the sequences that run {run.run} removed is "
                "damaged, and reclaim would keep it as evidence; nothing was changed; restore it from a copy, or move "
                "it away: then it is kept which files the run removed, and not which messages"
            ) from error


def fold_spent(looked: Survey, deletion: Deletion, now_ns: int) -> None:
    """Fold the evidence of the runs whose records are about to be deleted.

    Args:
        looked: the look at the stream, whose maintenance lease is held.
        deletion: the deletion of their files.
        now_ns: the storage's clock, nanoseconds since the epoch.

    Raises:
        BusyError, DamagedError: as `evidence.fold.fold_evidence`.
    """
    opened, end = looked.opened, _Reclaimed(now_ns, deletion.run)
    history = history_of(opened.warehouse, opened.name)
    outcomes = (history.done(run.run) for run in looked.spent(deletion.spared))
    fold_evidence(
        evidence_directory(opened.warehouse, opened.name),
        {
            outcome.run: partial(_rows, opened, outcome, end)
            for outcome in outcomes
            if outcome is not None and outcome.is_done
        },
    )


def _rows(opened: OpenedStream, outcome: RunRecord, end: _Reclaimed) -> Iterator[pa.Table]:
    """The evidence of a run, some rows at a time; shape `EVIDENCE`. None of one that took nothing."""
    run = outcome.run
    taken = recorded(opened, run)
    if taken is None or not (taken.is_exact or outcome.removed_messages):
        return
    for table in taken.tables():
        columns = {
            **{name: table[name] for name in table.column_names},
            "run": pa.repeat(run, table.num_rows),
            "reclaimed_ns": pa.repeat(end.at_ns, table.num_rows),
            "reclaim_run": pa.repeat(pa.scalar(end.by, pa.string()), table.num_rows),
        }
        yield pa.table(columns).select(EVIDENCE.names).cast(EVIDENCE)
