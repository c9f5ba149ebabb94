"""Claim, verify, delete: the dead files that a run selects are committed as claimed, checked again, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from retention.apply.change import Change
from retention.apply.reclaim.records import KeptRun, runs_with_records
from retention.apply.reclaim.report import Amount
from retention.apply.reclaim.survey import dead_files, evidence, present
from retention.apply.recorded_run import RecordedRun, recorded_run
from retention.context.context import OpenedStream
from retention.core.reclaim import DeadFile, Reason, decide_dead
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
from retention.stores.layout import note_claiming

_AT_A_TIME = 256
_IN_A_ROW = 32
"""The number of files that one thread deletes before it takes the next part."""

Deaths = Callable[[Sequence[KeptRun]], Iterable[DeadFile]]
"""A function from the records of runs, read again, to the deaths of claimed files."""


@dataclass(frozen=True)
class Deletion:
    """The deletion of claimed files by a run."""

    run: str | None = None
    spared: frozenset[str] = frozenset()
    """Claimed paths that the second check kept."""


def delete_dead(
    opened: OpenedStream,
    snapshot: Snapshot,
    dead: Sequence[DeadFile],
    cutoff_ns: int,
    deaths: Deaths,
) -> Deletion:
    """Claim dead files, check them again, and delete them; recorded in the run history.

    Args:
        opened: the stream, under its maintenance lease.
        snapshot: the version of the table on which the files were selected.
        dead: files that may be deleted.
        cutoff_ns: the end of the grace period, nanoseconds since the epoch.
        deaths: returns the deaths of the files for the second check.

    Raises:
        StalePlanError: another reclaim came first.
        BusyError: files of a Parquet stream are being moved.
    """
    layout, history = opened.layout, history_of(opened.warehouse, opened.name)
    note_claiming(layout, opened.config.format)
    claimed = {file.path for file in dead}
    places = dead_files(opened)
    with recorded_run(opened, snapshot) as run:
        version = _claim(opened, run, dead)
        with places.at_rest(snapshot) as live:
            runs = tuple(runs_with_records(opened, history, places, version))
            again = [file for file in deaths(runs) if file.path in claimed]
            going = decide_dead(again, evidence(places, runs, again, live, cutoff_ns)).to_delete
            for first in range(0, len(going), _AT_A_TIME):
                part = going[first : first + _AT_A_TIME]
                unlink([place for file in part for place in places.places(file)])
    return Deletion(run.name, frozenset(claimed.difference(file.path for file in going)))


def by_reason(dead: Iterable[DeadFile]) -> dict[str, Amount]:
    """Reason of death → the amount of its dead files."""
    amounts: dict[str, Amount] = {}
    for file in dead:
        before = amounts.get(file.reason, Amount())
        amounts[str(file.reason)] = before + Amount(1, file.file_bytes)
    return amounts


def _claim(opened: OpenedStream, run: RecordedRun, dead: Sequence[DeadFile]) -> int:
    """Commit a claim on files, after which no commit can restore them; return the version of the commit."""
    claims, counters = Claims(opened.layout), run.snapshot.counters
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
        # The claim is not counted, and no other run acts on it.
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
    """Delete many files in parallel; missing ones are ignored."""
    if not locations:
        return
    threads = files.read_parallelism(locations[0])
    parts = [locations[at : at + _IN_A_ROW] for at in range(0, len(locations), _IN_A_ROW)]
    for _ in in_threads(files.delete, parts, threads):
        pass
    reached(Step.DEAD_DELETED)


def drop_spent(opened: OpenedStream) -> None:
    """Delete the claims with only deleted files, including those of killed runs."""
    claims, places = Claims(opened.layout), dead_files(opened)
    spent = [
        run
        for run, paths in claims.read().items()
        if not any(
            present(places, [DeadFile(path, 0, reason, 0) for path in paths]) for reason in Reason
        )
    ]
    if spent:
        claims.drop(spent)
