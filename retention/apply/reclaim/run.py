"""Reclaiming: dead files are claimed by a commit, looked at again, and deleted (docs/decisions/reclaim.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from retention.apply.reclaim.records import runs_with_records
from retention.apply.reclaim.report import Amount, ReclaimReport
from retention.apply.reclaim.survey import Survey, dead_files, evidence, present, survey
from retention.apply.recover import basis, settle_interrupted
from retention.context.context import OpenedStream
from retention.core.reclaim import DeadFile, Reason, judge
from retention.core.table_requirements import AssertClaims
from retention.core.table_updates import SetClaims
from retention.errors import CommitUnknownError, RetentionError
from retention.history.runs import History, history_of
from retention.ports import Swap
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.parallel import in_threads
from retention.stores.claims import Claims
from retention.stores.layout import Layout, note_claiming
from retention.stores.lease import lease
from retention.stores.old_log import old_entries, trim
from retention.stores.storage_clock import agreed_now
from schemas.files import FILE_STATS, LOGGED_FILES

KIND = "reclaim"
"""The run history's kind of a run that deletes dead files."""
RECORDS = "undo_records"
"""The reason for which records of files that runs removed and added go: those files are gone for good."""
LOG = "log"
"""The reason for which log entries go: they are old, and a checkpoint or a full list stands for them."""
_AT_A_TIME = 256


def plan_reclaim(opened: OpenedStream) -> ReclaimReport:
    """Tell what a reclaim would delete by now; nothing is changed.

    Raises:
        DamagedError, RefusedError: as `reclaim_now`.
    """
    if not opened.store.exists():
        return ReclaimReport(opened.name, opened.config.grace_ns)
    now_ns = opened.clock()
    looked = survey(opened, now_ns)
    going = _going(looked, Deletion()) | _old_log(looked, now_ns)
    return ReclaimReport(opened.name, looked.grace_ns, going, looked.staying())


def reclaim_now(opened: OpenedStream) -> ReclaimReport:
    """Delete what is dead for longer than the grace, under the stream's maintenance lease.

    Raises:
        BusyError: another run holds the lease, or moves files.
        RefusedError: the storage's clock differs from ours, or the table is one that is not to be touched.
        StalePlanError: another reclaim has come first.
        DamagedError: a record or an entry of the log cannot be read.
    """
    if not opened.store.exists():
        return ReclaimReport(opened.name, opened.config.grace_ns, is_done=True)
    history = history_of(opened.warehouse, opened.name)
    layout = Layout(opened.root, opened.name)
    with lease(opened.root, "maintenance", opened.clock):
        settle_interrupted(opened, history)
        now_ns = agreed_now(layout, opened.clock())
        dead_files(opened).settle()
        looked = survey(opened, now_ns)
        deletion = _deleted(looked, history) if looked.present else Deletion()
        _unlink([place for file in looked.absent for place in looked.dead_files.places(file)[1:]])
        _drop_spent(opened)
        going = _going(looked, deletion)
        files.delete(looked.records(deletion.spared))
        reached(Step.RECORDS_DELETED)
        opened.store.finish()
        going |= _old_log(looked, now_ns)
        trim(layout, opened.config.format, looked.grace_ns, now_ns)
    return ReclaimReport(
        opened.name, looked.grace_ns, going, looked.staying(), deletion.run, is_done=True
    )


@dataclass(frozen=True)
class Deletion:
    """The deletion of claimed files by a run."""

    run: str | None = None
    spared: frozenset[str] = frozenset()
    """Paths that were claimed, and stayed when they were looked at again."""


def _going(looked: Survey, deletion: Deletion) -> dict[str, Amount]:
    """Reason → the files that go, but for those that a deletion has spared."""
    going = _by_reason(file for file in looked.present if file.path not in deletion.spared)
    return going | _amount(RECORDS, looked.records(deletion.spared))


def _old_log(looked: Survey, now_ns: int) -> dict[str, Amount]:
    opened = looked.opened
    layout = Layout(opened.root, opened.name)
    return _amount(LOG, old_entries(layout, opened.config.format, looked.grace_ns, now_ns))


def _amount(reason: str, locations: Sequence[str]) -> dict[str, Amount]:
    """The amount of those files that are there, under their reason; nothing if none is."""
    lengths = [length for length in files.lengths(locations) if length is not None]
    return {reason: Amount(len(lengths), sum(lengths))} if lengths else {}


def _by_reason(dead: Iterable[DeadFile]) -> dict[str, Amount]:
    amounts: dict[str, Amount] = {}
    for file in dead:
        before = amounts.get(file.reason, Amount())
        amounts[str(file.reason)] = before + Amount(1, file.file_bytes)
    return amounts


def _deleted(looked: Survey, history: History) -> Deletion:
    """Claim the dead files that are there, look again, and delete them."""
    opened, dead = looked.opened, looked.present
    layout = Layout(opened.root, opened.name)
    run = history.name_run(opened.clock())
    amounts = {reason: amount.as_json() for reason, amount in _by_reason(dead).items()}
    epoch = looked.snapshot.counters.epoch
    record: dict[str, Any] = {
        "stream": opened.name,
        "kind": KIND,
        "as_of_ns": opened.clock(),
        "removed_messages": 0,
        "removed_bytes": 0,
        "reclaimed": amounts,
    } | ({"epoch": epoch} if epoch else {})
    note_claiming(layout, opened.config.format)
    history.begin(run, record | basis(looked.snapshot) | {"status": "begun"})
    version = _claim(looked, run)
    spared = _delete_claimed(looked, history, version)
    history.finish(run, record | {"status": "done", "version_after": version})
    return Deletion(run, spared)


def _claim(looked: Survey, run: str) -> int:
    """Commit a claim on files: from now on nobody can commit one of them; the version of the commit."""
    opened, snapshot, dead = looked.opened, looked.snapshot, looked.present
    claims, counters = Claims(Layout(opened.root, opened.name)), snapshot.counters
    staged = any(file.reason is Reason.ABANDONED for file in dead)
    claims.write(run, [file.path for file in dead])
    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=FILE_STATS.empty_table(),
        metadata={"run": run, "claims": len(dead)},
        requirements=[AssertClaims(counters.claims)],
        updates=[SetClaims(counters.claims + 1, counters.staging_claims + staged)],
    )
    try:
        return opened.store.commit(swap, snapshot)
    except CommitUnknownError:
        raise
    except RetentionError:
        # Nothing counts this claim, and nobody else acts by it.
        claims.drop([run])
        raise


def _delete_claimed(looked: Survey, history: History, version: int) -> frozenset[str]:
    """Look at claimed files again, at the newest version and with everything at rest, and delete those that may go.

    Args:
        looked: the look upon which they were claimed.
        history: the stream's run history.
        version: the version that counts the claim.

    Returns:
        The paths that stay after all.
    """
    opened, places = looked.opened, looked.dead_files
    claimed = {file.path for file in looked.present}
    with places.at_rest() as live:
        runs = tuple(runs_with_records(opened, history, places, version))
        deaths = [file for run in runs for file in run.dead if file.path in claimed]
        again = judge(deaths, evidence(places, runs, deaths, live, looked.cutoff_ns))
        for first in range(0, len(again.going), _AT_A_TIME):
            part = again.going[first : first + _AT_A_TIME]
            _unlink([place for file in part for place in places.places(file)])
    return frozenset(claimed.difference(file.path for file in again.going))


def _unlink(locations: Sequence[str]) -> None:
    if not locations:
        return
    threads = files.read_parallelism(locations[0])
    for _ in in_threads(lambda place: files.delete([place]), locations, threads):
        pass
    reached(Step.DEAD_DELETED)


def _drop_spent(opened: OpenedStream) -> None:
    """Delete the claims of which every file is gone, of runs that were killed as well."""
    claims, places = Claims(Layout(opened.root, opened.name)), dead_files(opened)
    spent = [
        run
        for run, paths in claims.read().items()
        if not any(
            present(places, [DeadFile(path, 0, reason, 0) for path in paths]) for reason in Reason
        )
    ]
    if spent:
        claims.drop(spent)
