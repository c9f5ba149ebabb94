"""Claim, look, delete: dead files that a run means are committed as claimed, judged again, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from retention.apply.reclaim.records import KeptRun, runs_with_records
from retention.apply.reclaim.report import Amount
from retention.apply.reclaim.survey import dead_files, evidence, present
from retention.apply.recorded_run import Change, RecordedRun, recorded_run
from retention.context.context import OpenedStream
from retention.core.reclaim import DeadFile, Reason, judge
from retention.core.table_requirements import AssertClaims
from retention.core.table_updates import SetClaims
from retention.errors import CommitUnknownError, RetentionError
from retention.history.kinds import ClaimedFiles, Reclaimed
from retention.history.runs import history_of
from retention.ports import Snapshot
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.parallel import in_threads
from retention.stores.claims import Claims
from retention.stores.layout import Layout, note_claiming

_AT_A_TIME = 256
_IN_A_ROW = 32
"""The number of places that one thread deletes before the next part is handed out."""

Deaths = Callable[[Sequence[KeptRun]], Iterable[DeadFile]]
"""All deaths of claimed files, as the records of runs have them when the files are looked at again."""


@dataclass(frozen=True)
class Deletion:
    """The deletion of claimed files by a run."""

    run: str | None = None
    spared: frozenset[str] = frozenset()
    """Paths that were claimed, and stayed when they were looked at again."""


def delete_dead(
    opened: OpenedStream,
    snapshot: Snapshot,
    dead: Sequence[DeadFile],
    cutoff_ns: int,
    deaths: Deaths,
) -> Deletion:
    """Claim dead files, look again, and delete them; recorded in the run history.

    Args:
        opened: the stream, under its maintenance lease.
        snapshot: the table upon which the files were judged.
        dead: files that may go.
        cutoff_ns: the end of the grace, nanoseconds since the epoch.
        deaths: tells how the files died by the time of the second look.

    Raises:
        StalePlanError: another reclaim has come first.
        BusyError: files of a Parquet stream are being moved.
    """
    layout, history = Layout(opened.root, opened.name), history_of(opened.warehouse, opened.name)
    note_claiming(layout, opened.config.format)
    claimed = {file.path for file in dead}
    places = dead_files(opened)
    with recorded_run(opened, snapshot) as run:
        version = _claim(opened, run, dead)
        with places.at_rest(snapshot) as live:
            runs = tuple(runs_with_records(opened, history, places, version))
            again = [file for file in deaths(runs) if file.path in claimed]
            going = judge(again, evidence(places, runs, again, live, cutoff_ns)).going
            for first in range(0, len(going), _AT_A_TIME):
                part = going[first : first + _AT_A_TIME]
                unlink([place for file in part for place in places.places(file)])
    return Deletion(run.name, frozenset(claimed.difference(file.path for file in going)))


def by_reason(dead: Iterable[DeadFile]) -> dict[str, Amount]:
    """Reason → the dead files that died of it."""
    amounts: dict[str, Amount] = {}
    for file in dead:
        before = amounts.get(file.reason, Amount())
        amounts[str(file.reason)] = before + Amount(1, file.file_bytes)
    return amounts


def _claim(opened: OpenedStream, run: RecordedRun, dead: Sequence[DeadFile]) -> int:
    """Commit a claim on files: from now on no commit brings one of them back; the version of the commit."""
    claims, counters = Claims(Layout(opened.root, opened.name)), run.snapshot.counters
    staged = any(file.reason is Reason.ABANDONED for file in dead)
    change = Change(
        requirements=[AssertClaims(counters.claims)],
        updates=[SetClaims(counters.claims + 1, counters.staging_claims + staged)],
        metadata={"claims": len(dead)},
    )
    intent = run.begin(_intent(opened, run.name, dead), change)
    claims.write(run.name, [file.path for file in dead])
    try:
        outcome = run.commit_begun(intent, change)
    except CommitUnknownError:
        raise
    except RetentionError:
        # Nothing counts this claim, and nobody else acts by it.
        claims.drop([run.name])
        raise
    return outcome.committed_version


def _intent(opened: OpenedStream, run: str, dead: Sequence[DeadFile]) -> Reclaimed:
    return Reclaimed(
        run=run,
        as_of_ns=opened.clock(),
        removed_messages=0,
        removed_bytes=0,
        reclaimed={
            reason: ClaimedFiles(files=amount.files, bytes=amount.bytes)
            for reason, amount in by_reason(dead).items()
        },
    )


def unlink(locations: Sequence[str]) -> None:
    """Delete files at some places, many at a time; those that are gone already are fine."""
    if not locations:
        return
    threads = files.read_parallelism(locations[0])
    parts = [locations[at : at + _IN_A_ROW] for at in range(0, len(locations), _IN_A_ROW)]
    for _ in in_threads(files.delete, parts, threads):
        pass
    reached(Step.DEAD_DELETED)


def drop_spent(opened: OpenedStream) -> None:
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
