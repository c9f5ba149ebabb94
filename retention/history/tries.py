"""Tries of one scheduler task: finds the pass that an earlier try committed before its worker was lost."""

from __future__ import annotations

import itertools

from retention.history.initiator import initiator
from retention.history.kinds import Applied, TableApplied
from retention.history.runs import History

_OF_A_TRY = "try_number"


def earlier_try(history: History, as_of_ns: int) -> Applied | TableApplied | None:
    """The pass that changed messages or rows at an instant, committed by an earlier try of this scheduler's task.

    Args:
        history: the runs of the stream or table.
        as_of_ns: the instant.

    Returns:
        Its outcome; None if no earlier try committed one that is still in effect, or if no scheduler with tries
        started this process.
    """
    task = _task_of(initiator())
    if task is None:
        return None
    # A run with an earlier instant belongs to an earlier task.
    since = itertools.takewhile(lambda record: record.as_of_ns >= as_of_ns, history.outcomes())
    passes = (
        record for record in since if isinstance(record, (Applied, TableApplied)) and record.is_done
    )
    taking = (run for run in passes if _has_effect(run))
    same = (run for run in taking if run.as_of_ns == as_of_ns and _task_of(run.who) == task)
    return next((run for run in same if history.undone_by(run.run) is None), None)


def _has_effect(run: Applied | TableApplied) -> bool:
    if isinstance(run, TableApplied):
        return run.removed_rows > 0
    return bool(run.removed_messages or run.markers)


def _task_of(who: object) -> dict[str, str] | None:
    """Airflow's names for the task of a run, without the try number; None if there are none."""
    scheduler = who.get("scheduler") if isinstance(who, dict) else None
    names = scheduler.get("airflow") if isinstance(scheduler, dict) else None
    if not isinstance(names, dict):
        return None
    return {name: value for name, value in names.items() if name != _OF_A_TRY}
