"""Reclaiming: a commit claims dead files, which are checked again and deleted (decision 0035)."""

from __future__ import annotations

from collections.abc import Sequence

from retention.apply.reclaim.archived import SpentCopies, delete_copies, spent_copies
from retention.apply.reclaim.claim import (
    Deletion,
    by_reason,
    delete_dead,
    drop_spent,
    unlink,
)
from retention.apply.reclaim.evidence import fold_spent, prepare_evidence
from retention.apply.reclaim.records import KeptRun
from retention.apply.reclaim.report import Amount, ReclaimReport
from retention.apply.reclaim.spent_metadata import delete_spent, remove_emptied
from retention.apply.reclaim.survey import Survey, dead_files, survey
from retention.apply.recover import settle_interrupted
from retention.apply.undo_records import kept_runs
from retention.context.context import OpenedStream, has_table
from retention.context.holds import holds_in_effect
from retention.context.maintenance import removing
from retention.context.ownership import refuse_other_owner
from retention.core.reclaim import DeadFile
from retention.core.units import INT64_MAX
from retention.evidence.fold import forget_evidence
from retention.evidence.months import evidence_directory
from retention.history.runs import history_of
from retention.history.spent import spent_runs
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.old_log import OldLog
from retention.stores.storage_clock import agreed_now

RECORDS = "undo_records"
"""The reason for deleting records of files that runs removed and added: those files are deleted for good."""
HISTORY = "history"
"""The reason for deleting records of the run history: they are older than the configuration keeps them."""
NOTES = "notes"
"""The reason for deleting notes: the files that they describe are no longer all in the table."""
ARCHIVE = "archive"
"""The reason for deleting archived copies, and their manifests: they are older than the configuration keeps them."""
LOG = "log"
"""The reason for deleting log entries: they are old, and a checkpoint or a full listing replaces them."""


def plan_reclaim(opened: OpenedStream) -> ReclaimReport:
    """Report what a reclaim would delete now; nothing is changed.

    Raises:
        DamagedError, RefusedError: as `reclaim_now`.
    """
    if not has_table(opened):
        return ReclaimReport(opened.name, opened.config.grace_ns)
    now_ns = opened.clock()
    looked = survey(opened, now_ns)
    going = _going(looked, Deletion()) | _amount(LOG, _old_log(looked).places())
    going |= _amount(NOTES, _notes(looked))
    going |= _amount(HISTORY, _records_of(opened, _spent(looked, now_ns)))
    going |= _amount(ARCHIVE, _locations(_copies(looked, now_ns)))
    return ReclaimReport(
        opened.name,
        looked.grace_ns,
        going,
        looked.staying(),
        oldest_ns=looked.oldest_ns,
        kept_by_holds=looked.kept_by_holds,
    )


def reclaim_now(opened: OpenedStream) -> ReclaimReport:
    """Delete files that were dead longer than the grace period, under the stream's maintenance lease.

    Raises:
        BusyError: another run holds the lease, or moves files.
        RefusedError: the storage's clock differs from ours, the table must not be changed, or another configuration
            owns the stream.
        StalePlanError: another reclaim came first.
        DamagedError: a record or an entry of the log cannot be read.
    """
    if not has_table(opened):
        return ReclaimReport(opened.name, opened.config.grace_ns, is_done=True)
    refuse_other_owner(opened)
    history = history_of(opened.warehouse, opened.name)
    layout = opened.layout
    with removing(opened):
        settle_interrupted(opened, history)
        now_ns = agreed_now(layout, opened.clock())
        dead_files(opened).settle()
        looked = survey(opened, now_ns)
        prepare_evidence(looked)
        deletion = _deleted(looked) if looked.present else Deletion()
        unlink([place for file in looked.absent for place in looked.dead_files.places(file)[1:]])
        drop_spent(opened)
        going = _going(looked, deletion)
        gone = (file for file in looked.decision.to_delete if file.path not in deletion.spared)
        remove_emptied(layout, gone, looked.snapshot.counters.open_base)
        going |= _forget_notes(looked)
        fold_spent(looked, deletion, now_ns)
        files.delete(looked.records(deletion.spared))
        reached(Step.RECORDS_DELETED)
        opened.store.compact_statistics(looked.snapshot)
        opened.store.finish()
        going |= _delete_old(looked, now_ns)
    return ReclaimReport(
        opened.name,
        looked.grace_ns,
        going,
        looked.staying(),
        deletion.run,
        is_done=True,
        kept_by_holds=looked.kept_by_holds,
    )


def _delete_old(looked: Survey, now_ns: int) -> dict[str, Amount]:
    """Delete entries of the log, copies in the archive, and records of runs, which are older than they are kept."""
    opened, old_log = looked.opened, _old_log(looked)
    old, copies, spent = old_log.places(), _copies(looked, now_ns), _spent(looked, now_ns)
    amounts = _amount(LOG, old) | _amount(ARCHIVE, _locations(copies))
    amounts |= _amount(HISTORY, _records_of(opened, spent))
    old_log.trim(old)
    for each in copies:
        delete_copies(each, now_ns)
    forget_evidence(evidence_directory(opened.warehouse, opened.name), spent)
    history_of(opened.warehouse, opened.name).forget(spent)
    return amounts


def _going(looked: Survey, deletion: Deletion) -> dict[str, Amount]:
    """Reason → the files to delete, without those that a deletion kept."""
    going = by_reason(file for file in looked.present if file.path not in deletion.spared)
    return going | _amount(RECORDS, looked.records(deletion.spared))


def _forget_notes(looked: Survey) -> dict[str, Amount]:
    """Delete notes that are no longer needed; reason → their amount."""
    notes = _notes(looked)
    amount = _amount(NOTES, notes)
    delete_spent(notes)
    return amount


def _notes(looked: Survey) -> list[str]:
    return looked.opened.store.spent_notes(looked.snapshot)


def _old_log(looked: Survey) -> OldLog:
    opened, version = looked.opened, looked.snapshot.version
    return opened.table_format.old_log(opened.layout, version, looked.log_cutoff_ns)


def _spent(looked: Survey, now_ns: int) -> list[str]:
    """The runs with a history older than the configuration keeps it, and beyond any undo."""
    opened = looked.opened
    kept_ns = max(opened.config.history, looked.grace_ns)
    if kept_ns >= INT64_MAX:
        return []
    history = history_of(opened.warehouse, opened.name)
    return spent_runs(history.finished(), history.done, set(kept_runs(opened)), now_ns - kept_ns)


def _copies(looked: Survey, now_ns: int) -> list[SpentCopies]:
    """The copies in the archive that are older than the configuration keeps them."""
    opened = looked.opened
    holds = holds_in_effect(opened, looked.snapshot.counters)
    return spent_copies(opened, holds, now_ns)


def _locations(copies: Sequence[SpentCopies]) -> list[str]:
    return [location for spent in copies for location in spent.locations]


def _records_of(opened: OpenedStream, runs: Sequence[str]) -> list[str]:
    history = history_of(opened.warehouse, opened.name)
    places = ((history.begun_location(run), history.done_location(run)) for run in runs)
    return [place for both in places for place in both]


def _amount(reason: str, locations: Sequence[str]) -> dict[str, Amount]:
    """The amount of the existing files, under their reason; empty if none exists."""
    lengths = [length for length in files.lengths(locations) if length is not None]
    return {reason: Amount(len(lengths), sum(lengths))} if lengths else {}


def _deleted(looked: Survey) -> Deletion:
    """Delete the dead files that exist; of claimed files, only those that the records still list as dead."""

    def deaths(runs: Sequence[KeptRun]) -> list[DeadFile]:
        return [file for run in runs for file in run.dead]

    return delete_dead(looked.opened, looked.snapshot, looked.present, looked.cutoff_ns, deaths)
