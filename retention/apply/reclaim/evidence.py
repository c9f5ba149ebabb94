"""Evidence of runs before a reclaim deletes their records: prepared while their files exist, then folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.exact_ranges import has_holes, without_holes
from retention.apply.reclaim.claim import Deletion
from retention.apply.reclaim.records import KeptRun
from retention.apply.reclaim.survey import Survey
from retention.apply.run_evidence import TakenByRun, recorded
from retention.context.context import OpenedStream
from retention.context.run_files import RANGES, undo_location
from retention.errors import DamagedError
from retention.evidence.fold import Prepared, fold_evidence
from retention.evidence.months import evidence_directory
from retention.history.record import RunRecord
from retention.history.runs import history_of
from retention.schemas.evidence import EVIDENCE


@dataclass(frozen=True)
class _Reclaimed:
    """The end of a run's undo: the time, and the reclaim."""

    at_ns: int
    by: str | None


def prepare_evidence(looked: Survey) -> None:
    """Record the facts that only the files of runs contain, before they are deleted; refuse if evidence would be lost.

    Raises:
        DamagedError: the record of the sequences that a run removed differs from what was written; nothing is deleted.
    """
    opened = looked.opened
    prepared = _prepared(opened)
    there = prepared.runs()
    runs = sorted(looked.spent(), key=lambda run: run.run)
    prepared.add(
        _exact(opened, run.run) for run in runs if run.run not in there and _read(opened, run)
    )


def fold_spent(looked: Survey, deletion: Deletion, now_ns: int) -> None:
    """Fold the evidence of the runs with records that are about to be deleted.

    Args:
        looked: the survey of the stream, whose maintenance lease is held.
        deletion: the deletion of their files.
        now_ns: the storage's clock, nanoseconds since the epoch.

    Raises:
        BusyError, DamagedError: as `evidence.fold.fold_evidence`.
    """
    opened, end = looked.opened, _Reclaimed(now_ns, deletion.run)
    history, prepared = history_of(opened.warehouse, opened.name), _prepared(opened)
    read = prepared.runs()
    outcomes = [history.done(run.run) for run in looked.spent(deletion.spared)]
    done = [outcome for outcome in outcomes if outcome is not None and outcome.is_done]
    fold_evidence(
        evidence_directory(opened.warehouse, opened.name),
        {
            outcome.run: partial(_exact_rows, outcome, prepared, end)
            if outcome.run in read
            else partial(_rows, opened, outcome, end)
            for outcome in done
        },
    )
    prepared.drop({outcome.run for outcome in done})


def _prepared(opened: OpenedStream) -> Prepared:
    return Prepared(evidence_directory(opened.warehouse, opened.name))


def _read(opened: OpenedStream, run: KeptRun) -> bool:
    """Whether the record of a run has ranges with holes, so that only its files show which messages were in them.

    Raises:
        DamagedError: the record differs from what was written.
    """
    taken = _of_record(opened, run.run)
    if taken is None or not taken.is_exact:
        return False
    return any(pc.any(has_holes(rows), min_count=0).as_py() for rows in taken.tables())


def _of_record(opened: OpenedStream, run: str) -> TakenByRun | None:
    try:
        return recorded(opened, run)
    except DamagedError as error:
        raise DamagedError(
            f"{undo_location(opened, run, RANGES)}: the record of the sequences that run {run} removed is damaged, and "
            "reclaim would keep it as evidence; nothing was changed; restore it from a copy, or move it away: then it "
            "is kept which files the run removed, and not which messages"
        ) from error


def _exact(opened: OpenedStream, run: str) -> Iterator[pa.Table]:
    taken = _of_record(opened, run)
    for table in without_holes(opened, () if taken is None else taken.tables()):
        yield _evidence(run, table, _Reclaimed(0, None))


def _exact_rows(outcome: RunRecord, prepared: Prepared, end: _Reclaimed) -> Iterator[pa.Table]:
    """The prepared evidence of a run, in batches; shape `EVIDENCE`."""
    return (_evidence(outcome.run, table, end) for table in prepared.of_run(outcome.run))


def _rows(opened: OpenedStream, outcome: RunRecord, end: _Reclaimed) -> Iterator[pa.Table]:
    """The evidence of a run from its records, in batches; shape `EVIDENCE`. Empty if the run removed nothing."""
    taken = recorded(opened, outcome.run)
    if taken is not None and (taken.is_exact or outcome.removed_messages):
        for table in taken.tables():
            yield _evidence(outcome.run, table, end)


def _evidence(run: str, table: pa.Table, end: _Reclaimed) -> pa.Table:
    """Ranges of a run in the shape `EVIDENCE`."""
    columns = {
        **{name: table[name] for name in table.schema.names},
        "run": pa.repeat(run, table.num_rows),
        "reclaimed_ns": pa.repeat(end.at_ns, table.num_rows),
        "reclaim_run": pa.repeat(pa.scalar(end.by, pa.string()), table.num_rows),
    }
    return pa.table(columns).select(EVIDENCE.names).cast(EVIDENCE)
