"""Undo of a run within its grace period: exactly the files it removed are restored, and its copies are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from retention.apply.bring_back import (
    ComingBack,
    Findings,
    bring_back,
    find_removed,
)
from retention.apply.foreign_changes import (
    UndoCheck,
    changed_since,
    refuse_lost,
    refuse_put_back,
)
from retention.apply.put_back import compare_rows, put_back, refuse_undo_of_released
from retention.apply.recorded_run import Change, RecordedRun, recorded_run
from retention.apply.recover import settle_interrupted
from retention.apply.undo_records import (
    find_ranges,
    is_in_force,
    read_record,
    refuse_claimed,
)
from retention.context.context import OpenedStream
from retention.context.maintenance import maintaining
from retention.context.run_files import undo_location
from retention.context.topic import has_data
from retention.core.labels import on_stream
from retention.core.table_requirements import AssertEpoch
from retention.core.table_updates import (
    SetDropped,
    set_epoch,
)
from retention.engines.select import Engines
from retention.errors import RefusedError, UsageError
from retention.history.kinds import (
    Dropped,
    NewerRun,
    RestoredRun,
    ReturnedRemoved,
    SequencesRepaired,
    Undone,
)
from retention.history.record import UNKNOWN, RunRecord
from retention.history.runs import History, history_of
from retention.interest.commit_offsets import lower_watermarks
from retention.layout.segment_homes import divided_mask, homes_of
from retention.ports import Snapshot
from retention.rules import DELETE_SEGMENTS

Later = Sequence[RunRecord]
"""The outcomes of later runs that have, or may have, changed the table, newest first."""


@on_stream
def undo_run(opened: OpenedStream, run: str, engines: Engines | None = None) -> Undone:
    """Restore what a run removed, in one commit; sequences and counters are unchanged.

    The removed files are restored; where other runs have rewritten its copies, exactly its messages are written anew,
    in their present segments.

    Args:
        opened: the stream.
        run: the run to undo.
        engines: where rows are copied; None: in this process.

    Returns:
        The record of the undoing run.

    Raises:
        UsageError: the stream has no such run, it changed nothing, or it was undone already.
        RefusedError: some of the messages are in the table again; or a topic was purged since, or written to after that
            purge.
        VerificationError: a removed file is gone or changed: the grace period is over.
    """
    history = history_of(opened.warehouse, opened.name)
    with maintaining(opened):
        settle_interrupted(opened, history)
        later = _later(opened, history, run)
        undoing = _check_undoing(opened, history, run, later)
        outcome = undoing.outcome
        if DELETE_SEGMENTS in outcome.by_rule:
            continuing = history.continuing(outcome.epoch)[-1]
            lower_watermarks(opened, undoing.removed, continuing)
            undoing = replace(undoing, snapshot=opened.store.snapshot())
        epochs = _epochs(opened, history, outcome, undoing.snapshot)
        findings = _rows_to_find(undoing, later)
        with recorded_run(opened, undoing.snapshot) as run_of_undo:
            back = (
                put_back(undoing)
                if findings is None
                else bring_back(undoing, findings, engines or Engines("local"))
            )
            return _commit(undoing, run_of_undo, back, epochs)


def show_undo(opened: OpenedStream, run: str) -> dict[str, Any]:
    """Show the effect of undoing a run; nothing is changed.

    Returns:
        `stream`, `undoes`, `restored_messages`, `restored_bytes`, the number of `files` to restore, and whether they
            are `rewritten`: True if messages are written anew because other runs have rewritten the run's copies.

    Raises:
        UsageError, RefusedError, VerificationError: as `undo_run`.
    """
    history = history_of(opened.warehouse, opened.name)
    history.refuse_newer()
    later = _later(opened, history, run)
    undoing = _check_undoing(opened, history, run, later)
    outcome = undoing.outcome
    _epochs(opened, history, outcome, undoing.snapshot)
    findings = _rows_to_find(undoing, later)
    if findings is None:
        compare_rows(undoing)
    return {
        "stream": opened.name,
        "undoes": run,
        "restored_messages": outcome.removed_messages,
        "restored_bytes": outcome.removed_bytes,
        "files": undoing.removed.num_rows if findings is None else len(findings.taken),
        "rewritten": findings is not None,
    }


def _check_undoing(opened: OpenedStream, history: History, run: str, later: Later) -> UndoCheck:
    """Read the records of a run that can be undone.

    Raises:
        UsageError, RefusedError, DamagedError: it cannot be, whatever the table contains; or its records are gone.
    """
    outcome = _undoable(opened, history, run)
    snapshot = opened.store.snapshot()
    refuse_put_back(opened, snapshot, outcome)
    _refuse_undone(opened, run, later)
    removed, added = (read_record(opened, run, name) for name in ("removed", "added"))
    _check_in_force(opened, outcome, added)
    undoing = UndoCheck(opened, snapshot, outcome, removed, added)
    refuse_undo_of_released(undoing)
    return undoing


def _rows_to_find(undoing: UndoCheck, later: Later) -> Findings | None:
    """The messages to write anew; None: the files that the run removed can be restored unchanged.

    Raises:
        RefusedError: neither is possible.
        VerificationError: files are gone.
    """
    touched = _touched_since(undoing, later)
    in_the_way = touched or changed_since(undoing) or _merged_since(undoing)
    if in_the_way is None:
        refuse_lost(undoing)
        return None
    ranges = (
        None if undoing.outcome.ends_epoch is not None else find_ranges(undoing.opened, undoing.run)
    )
    if ranges is None:
        raise in_the_way
    return find_removed(
        undoing, ranges.tables(), in_the_way if touched is None else _there_again(undoing)
    )


def _there_again(undoing: UndoCheck) -> RefusedError:
    return RefusedError(
        f"{undoing.opened.name}: messages that run {undoing.run} removed are in the table again, as after a restore "
        "from an archive, and would be duplicated; nothing was changed; restore the others from the archive as well"
    )


def _commit(
    undoing: UndoCheck, run: RecordedRun, back: ComingBack, epochs: tuple[int, int]
) -> Undone:
    opened, outcome = undoing.opened, undoing.outcome
    added = run.staged(back.added)
    intent = Undone(
        run=run.name,
        undoes=undoing.run,
        as_of_ns=outcome.as_of_ns,
        restored_messages=outcome.removed_messages,
        restored_bytes=outcome.removed_bytes,
        epoch=epochs[1],
    )
    if back.is_rewritten:
        intent = intent.updated(rewritten=True)
    change = Change(
        remove=back.removed,
        add=added,
        ranges=[back.markers],
        requirements=[
            AssertEpoch(epochs[0]),
            refuse_claimed(opened, undoing.snapshot, added),
            *back.requirements,
        ],
        updates=[
            *set_epoch(*epochs),
            *([SetDropped(0)] if isinstance(outcome, Dropped) else ()),
        ],
        metadata={"undoes": undoing.run},
    )
    return run.commit(intent, change)


def _undoable(opened: OpenedStream, history: History, run: str) -> RunRecord:
    outcome = history.done(run)
    if isinstance(outcome, NewerRun):
        raise history.newer_error(outcome)
    if outcome is None or isinstance(outcome, Undone) or not outcome.may_count:
        raise UsageError(
            f"{opened.name}: there is no finished run {run} to undo; `retention history` lists the runs"
        )
    if isinstance(outcome, SequencesRepaired):
        raise UsageError(
            f"{opened.name}: run {run} repaired the stream, which cannot be undone: no pass can process the removed "
            f"rows; their files are kept for the grace period, and {undo_location(opened, run, 'removed')} names them"
        )
    if not outcome.removed_messages and outcome.ends_epoch is None:
        raise UsageError(f"{opened.name}: run {run} removed nothing, so there is nothing to undo")
    if outcome.request is not None and outcome.request.erase:
        raise UsageError(
            f"{opened.name}: run {run} erased its messages, which cannot be undone; import a backup if you have one"
        )
    return outcome


def _may_be_in_force(opened: OpenedStream, outcome: RunRecord) -> bool:
    """Whether a run committed, as far as is known: where the history does not say, the live files decide."""
    if outcome.status != UNKNOWN:
        return outcome.is_done
    return is_in_force(opened, outcome.run, opened.store.snapshot()) is not False


def _check_in_force(opened: OpenedStream, outcome: RunRecord, added: pa.Table) -> None:
    """Refuse to undo an interrupted run of unknown outcome unless the table can be as that run left it.

    Raises:
        UsageError: it is not.
        RefusedError: the outcome is unknown, and the run's copies cannot be removed.
    """
    if outcome.status != UNKNOWN:
        return
    run = outcome.run
    in_force = is_in_force(opened, run, opened.store.snapshot())
    if in_force is False:
        raise UsageError(
            f"{opened.name}: run {run} was interrupted, and files that it was about to remove are in the table, so "
            "there is nothing to undo"
        )
    if in_force is None and added.num_rows:
        raise RefusedError(
            f"{opened.name}: run {run} was interrupted, and it is unknown whether it committed: the table has neither "
            "the files that it removed nor those that it wrote instead; nothing was changed; restore messages from an "
            "archive or a backup"
        )


def _later(opened: OpenedStream, history: History, run: str) -> Later:
    """The later runs that have, or may have, changed the table, newest first."""
    return [record for record in history.since(run) if _may_be_in_force(opened, record)]


def _refuse_undone(opened: OpenedStream, run: str, later: Later) -> None:
    """Refuse a run that was already undone, or that a purge of the topic follows.

    Raises:
        UsageError: it was undone.
        RefusedError: the topic was purged.
    """
    undone = {record.undoes: record.run for record in later if isinstance(record, Undone)}
    if run in undone:
        raise UsageError(f"{opened.name}: run {run} was undone already, by {undone[run]}")
    for record in later:
        if record.purges and record.run not in undone:
            done = "dropped the stream" if isinstance(record, Dropped) else "purged the topic"
            raise RefusedError(
                f"{opened.name}: run {record.run} {done} after run {run}; undo that one first"
            )


def _touched_since(undoing: UndoCheck, later: Later) -> RefusedError | None:
    """The error if a later run removed messages from the same segments, or restored some there; None: none did."""
    opened, run = undoing.opened, undoing.run
    undone = {record.undoes for record in later if isinstance(record, Undone)}
    segments = _segments(undoing.removed)
    for record in later:
        if isinstance(record, RestoredRun):
            if segments & _segments(read_record(opened, record.run, "added")):
                return RefusedError(
                    f"{opened.name}: run {record.run} restored messages of the same segments from an archive after "
                    f"run {run}, so they would be duplicated; nothing was changed; restore the others from the archive "
                    "as well"
                )
            continue
        if _wrote_anew(record) and segments & _written_anew(opened, record):
            return RefusedError(
                f"{opened.name}: run {record.run} rewrote messages of the same segments after run {run}, and a version "
                f"of this program that recorded only whole files made run {run}; nothing was changed; restore messages "
                "from an archive or a backup"
            )
        counts = not isinstance(record, Undone | ReturnedRemoved)
        if not counts or record.run in undone or not record.removed_messages:
            continue
        if segments & _segments(read_record(opened, record.run, "removed")):
            return RefusedError(
                f"{opened.name}: run {record.run} removed messages of the same segments after run {run}; undo "
                "that one first"
            )
    return None


def _wrote_anew(record: RunRecord) -> bool:
    """Whether an undo wrote messages in new files."""
    return isinstance(record, Undone) and record.rewritten


def _written_anew(opened: OpenedStream, record: RunRecord) -> set[tuple[int, int]]:
    """The segments in which an undo wrote messages."""
    return _segments(read_record(opened, record.run, "added"))


def _merged_since(undoing: UndoCheck) -> RefusedError | None:
    """The error if segments were merged since; None: they were not."""
    opened, live = undoing.opened, undoing.snapshot.files
    moved = homes_of(live, undoing.removed) != undoing.removed["segment"].to_numpy()
    if bool((moved | divided_mask(live, undoing.removed)).any()):
        return RefusedError(
            f"{opened.name}: the segments of run {undoing.run} have been compacted since, and a version of this "
            "program that recorded only whole files made that run; nothing was changed; restore messages from an "
            "archive or a backup"
        )
    return None


def _epochs(
    opened: OpenedStream, history: History, outcome: RunRecord, snapshot: Snapshot
) -> tuple[int, int]:
    """The epochs before and after the undo of a run: an epoch ended by a purge continues if nothing was written since.

    Raises:
        RefusedError: messages were appended after a purge.
    """
    here = history.continuing(outcome.epoch)[-1]
    if outcome.ends_epoch is None:
        return here, here
    if isinstance(outcome, Dropped) and not snapshot.counters.dropped_ns:
        raise RefusedError(
            f"{opened.name}: a write has begun another table since run {outcome.run} dropped the stream, with "
            "the sequences of the dropped one; nothing was changed; the run can no longer be undone"
        )
    if has_data(opened, snapshot):
        raise RefusedError(
            f"{opened.name}: messages stored since run {outcome.run} purged the topic have the offsets of the removed "
            "ones; nothing was changed; the run can no longer be undone"
        )
    return here, outcome.ends_epoch


def _segments(files_of_run: pa.Table) -> set[tuple[int, int]]:
    partitions, segments = (files_of_run[name].to_pylist() for name in ("partition", "segment"))
    return set(zip(partitions, segments, strict=True))
