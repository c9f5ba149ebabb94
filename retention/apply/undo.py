"""Undo of a run within its grace period: exactly the messages it removed are restored, and its copies are removed.

1. Read the run's record and those of later runs; refuse a run that removed nothing, was undone already, or that a purge
   follows.
2. Read the records of its files; refuse a run that is not in force in the table.
3. Determine the epoch that continues; refuse if messages were stored since a purge.
4. Choose the sources: the removed files unchanged, or, if their segments have changed since, the removed rows in their
   present segments. Refuse if a source is gone, or if the table already has one of the messages.
5. Lower a topic's watermarks below the restored messages, so that plans made before are refused.
6. Commit one swap: the sources in, the run's copies and markers out.

A dry run ends after step 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from retention.apply.change import Change
from retention.apply.kept_counts import kept_counts
from retention.apply.recorded_run import RecordedRun, recorded_run
from retention.apply.recover import settle_interrupted
from retention.apply.replay_terms import refuse_replayed_on, undo_terms
from retention.apply.undo_conflicts import (
    foreign_change,
    merged_since,
    present_again,
    touched_since,
)
from retention.apply.undo_files import RunToUndo
from retention.apply.undo_hold import hold_of_undo
from retention.apply.undo_records import (
    find_ranges,
    is_in_force,
    read_record,
    refuse_claimed,
)
from retention.apply.undo_sources import UndoSources, find_files, find_rows
from retention.context.context import OpenedStream
from retention.context.holds import refuse_held
from retention.context.maintenance import maintaining
from retention.context.run_files import undo_location
from retention.context.topic import has_data
from retention.core.labels import on_stream
from retention.core.prefix import TailTotals
from retention.core.spoken_commands import command
from retention.core.table_requirements import AssertEpoch
from retention.core.table_updates import SetDropped, set_epoch
from retention.engines.select import Engines
from retention.erasure.record import Erasures
from retention.errors import RefusedError, RetentionError, UsageError
from retention.history.kinds import (
    Dropped,
    NewerRun,
    PlannedRun,
    SequencesRepaired,
    Undone,
    is_erasure,
)
from retention.history.record import UNKNOWN, RunRecord
from retention.history.runs import History, history_of
from retention.interest.commit_offsets import lower_watermarks
from retention.ports import Snapshot
from retention.rules import DELETE_SEGMENTS
from retention.stores.row_tombstones import LAST_BUILD, tombstoned_paths


@on_stream
def undo_run(
    opened: OpenedStream, run: str, engines: Engines | None = None, hold: str | None = None
) -> Undone:
    """Restore what a run removed, in one commit; sequences and counters are unchanged.

    Args:
        opened: the stream.
        run: the run to undo.
        engines: where rows are copied; None: in this process.
        hold: the reason of a legal hold, which is placed on the messages before they are restored; None: none is.

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
        plan = _plan_undo(opened, history, run)
        undo = plan.undo
        if isinstance(undo.outcome, PlannedRun) and undo.outcome.markers:
            refuse_held(
                opened, undo.snapshot.counters, "an undo of a run that wrote delete markers"
            )
        if hold is not None:
            hold_of_undo(opened, undo.outcome, hold)
            # The legal hold is a commit, too.
            plan = _plan_undo(opened, history, run)
            undo = plan.undo
        if DELETE_SEGMENTS in undo.outcome.by_rule:
            lower_watermarks(opened, undo.removed, plan.epochs[0])
        with recorded_run(opened, undo.snapshot) as transaction:
            change = plan.sources.stage(transaction, engines or Engines("local"))
            return _commit(plan, transaction, change)


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
    plan = _plan_undo(opened, history, run)
    outcome, sources = plan.undo.outcome, plan.sources
    return {
        "stream": opened.name,
        "undoes": run,
        "restored_messages": outcome.removed_messages,
        "restored_bytes": outcome.removed_bytes,
        "files": sources.files,
        "rewritten": sources.is_rewritten,
    }


@dataclass(frozen=True)
class _UndoPlan:
    """The decisions of an undo, before anything is changed."""

    undo: RunToUndo
    epochs: tuple[int, int]
    """The epochs before and after the undo."""
    sources: UndoSources


def _plan_undo(opened: OpenedStream, history: History, run: str) -> _UndoPlan:
    """Take steps 1 to 4.

    Raises:
        UsageError, RefusedError, VerificationError: the run cannot be undone.
        DamagedError: a record of the run differs from what was written.
    """
    outcome = _undoable(opened, history, run)
    _refuse_erasing(opened, run)
    snapshot = opened.store.snapshot()
    _refuse_earlier_copy(opened, snapshot, outcome)
    later = [record for record in history.since(run) if _may_be_in_force(opened, record, snapshot)]
    _refuse_undone(opened, run, later)
    removed, added = (read_record(opened, run, name) for name in ("removed", "added"))
    undo = RunToUndo(opened, snapshot, outcome, later, removed, added)
    _refuse_uncommitted(undo)
    refuse_replayed_on(opened, snapshot.counters, run)
    _refuse_row_tombstones(undo)
    epochs = _epochs(undo, history)
    return _UndoPlan(undo, epochs, _sources(undo))


def _sources(undo: RunToUndo) -> UndoSources:
    """Choose between the removed files unchanged and the removed rows in new files.

    Raises:
        RefusedError: neither is possible.
        VerificationError: files are gone.
    """
    touched = touched_since(undo)
    conflict = touched or foreign_change(undo) or merged_since(undo)
    if conflict is None:
        return find_files(undo)
    purges = undo.outcome.ends_epoch is not None
    ranges = None if purges else find_ranges(undo.opened, undo.run)
    if ranges is None:
        raise conflict
    present = conflict if touched is None else present_again(undo)
    return find_rows(undo, ranges.tables(), present)


def _commit(plan: _UndoPlan, transaction: RecordedRun, change: Change) -> Undone:
    undo, outcome = plan.undo, plan.undo.outcome
    replay = undo_terms(undo.opened, undo.snapshot, undo.run)
    intent = Undone(
        run=transaction.name,
        undoes=undo.run,
        as_of_ns=outcome.as_of_ns,
        restored_messages=outcome.removed_messages,
        restored_bytes=outcome.removed_bytes,
        epoch=plan.epochs[1],
    )
    if plan.sources.is_rewritten:
        intent = intent.updated(rewritten=True)
    with suppress(RetentionError):  # an undo needs no statistics of files that it does not touch
        stored = undo.opened.store.inventory(undo.snapshot).files
        intent = intent.updated(**kept_counts(stored, change, TailTotals()))
    return transaction.commit(
        intent,
        replace(
            change,
            requirements=[
                AssertEpoch(plan.epochs[0]),
                refuse_claimed(undo.opened, undo.snapshot, change.add),
                *change.requirements,
                *replay.requirements,
            ],
            updates=[
                *replay.updates,
                *set_epoch(*plan.epochs),
                *([SetDropped(0)] if isinstance(outcome, Dropped) else ()),
            ],
            metadata={"undoes": undo.run},
        ),
    )


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
    if is_erasure(outcome):
        raise UsageError(
            f"{opened.name}: run {run} erased its messages, which cannot be undone; import a backup if you have one"
        )
    return outcome


def _refuse_erasing(opened: OpenedStream, run: str) -> None:
    """Refuse a run with messages that an unfinished erasure is taking away.

    Raises:
        RefusedError: names the erasure.
        DamagedError: the record of an erasure cannot be read.
    """
    for erasure in Erasures(opened.root, opened.name).unfinished():
        if run in erasure.lost_undos:
            raise RefusedError(
                f"{opened.name}: run {run} cannot be undone: erasure {erasure.id}, which is unfinished, takes some of "
                f"its messages for good; nothing was changed; {command('erase', opened.name, options='--resume')} "
                "goes on with it"
            )


def _refuse_earlier_copy(opened: OpenedStream, snapshot: Snapshot, outcome: RunRecord) -> None:
    """Refuse a run unknown to the table: the table was restored from an earlier copy.

    Raises:
        RefusedError: the table was restored.
    """
    here, committed = snapshot.version, outcome.version_after
    if committed is not None and here < committed:
        raise RefusedError(
            f"{opened.name}: there is nothing to undo: the table is at version {here}, and run {outcome.run} "
            f"committed version {committed}, so the table was restored from an earlier copy, which has the removed "
            "messages; nothing was changed"
        )


def _may_be_in_force(opened: OpenedStream, outcome: RunRecord, snapshot: Snapshot) -> bool:
    """Whether a run committed, as far as is known: where the history does not say, the live files decide."""
    if outcome.status != UNKNOWN:
        return outcome.is_done
    return is_in_force(opened, outcome.run, snapshot) is not False


def _refuse_undone(opened: OpenedStream, run: str, later: Sequence[RunRecord]) -> None:
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


def _refuse_uncommitted(undo: RunToUndo) -> None:
    """Refuse an interrupted run of unknown outcome unless the table can be as that run left it.

    Raises:
        UsageError: it is not.
        RefusedError: the outcome is unknown, and the run's copies cannot be removed.
    """
    if undo.outcome.status != UNKNOWN:
        return
    opened, run = undo.opened, undo.run
    in_force = is_in_force(opened, run, undo.snapshot)
    if in_force is False:
        raise UsageError(
            f"{opened.name}: run {run} was interrupted, and files that it was about to remove are in the table, so "
            "there is nothing to undo"
        )
    if in_force is None and undo.added.num_rows:
        raise RefusedError(
            f"{opened.name}: run {run} was interrupted, and it is unknown whether it committed: the table has neither "
            "the files that it removed nor those that it wrote instead; nothing was changed; restore messages from an "
            "archive or a backup"
        )


def _refuse_row_tombstones(undo: RunToUndo) -> None:
    """Refuse a run that read or changed row tombstones of an earlier build.

    Raises:
        RefusedError: the run's files hold messages that were released before it, or it released messages in files
            that it kept.
        DamagedError: the current record of row tombstones cannot be read.
    """
    hidden = set(tombstoned_paths(undo.layout, undo.snapshot.counters.released).to_pylist())
    if undo.outcome.released is not None or not hidden.isdisjoint(undo.removed["path"].to_pylist()):
        raise RefusedError(
            f"{undo.opened.name}: an earlier build released messages in the files of run {undo.run} without "
            "rewriting them, and this one cannot tell those messages from the others; nothing was changed; undo it "
            f"with commit {LAST_BUILD} of this project"
        )


def _epochs(undo: RunToUndo, history: History) -> tuple[int, int]:
    """The epochs before and after the undo of a run: an epoch ended by a purge continues if nothing was written since.

    Raises:
        RefusedError: messages were appended after a purge.
    """
    opened, outcome, snapshot = undo.opened, undo.outcome, undo.snapshot
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
