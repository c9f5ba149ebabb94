"""The dead files of a stream by the records of its runs, and the records that are no longer needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from retention.apply.undo_records import kept_runs, read_record
from retention.context.context import OpenedStream
from retention.context.run_files import undo_location
from retention.core.reclaim import DeadFile, Reason
from retention.core.run_names import started_ns
from retention.core.vector_paths import all_stored, stored_files
from retention.history.kinds import Undone
from retention.history.record import ABANDONED, RunRecord
from retention.history.runs import History
from retention.storage import files
from retention.stores.dead_files import DeadFiles

_REMOVED, _ADDED = "removed", "added"


@dataclass(frozen=True)
class KeptRun:
    """A run with file records, and the dead files in them."""

    run: str
    records: tuple[str, ...]
    """Locations of the records."""
    since_ns: int
    """The latest known instant of the run's end, nanoseconds since the epoch."""
    dead: tuple[DeadFile, ...] = ()
    is_certain: bool = True
    """Whether the run's outcome is known; False: it has no outcome, or belongs to another log than the table's."""
    doubtful: frozenset[str] = frozenset()
    """The paths in the records of a run with unknown outcome."""


def runs_with_records(
    opened: OpenedStream, history: History, dead_files: DeadFiles, newest: int
) -> Iterator[KeptRun]:
    """The runs with file records, the oldest first.

    Args:
        opened: the stream.
        history: its run history.
        dead_files: its table's dead files.
        newest: the table's newest version.

    Raises:
        DamagedError: a record cannot be read, so the files that its run removed are unknown.
    """
    unfinished = set(history.unfinished())
    for run, names in kept_runs(opened).items():
        outcome = history.done(run)
        records = tuple(undo_location(opened, run, name) for name in names)
        if outcome is None and run not in unfinished:
            # Killed before its entry in the history: it committed nothing, and its intended additions are unknown.
            yield KeptRun(run, records, _written_ns(records))
        elif outcome is None or not outcome.is_certain:
            yield _uncertain(opened, run, names, records)
        else:
            yield _ended(opened, history, dead_files, _Ended(run, outcome, names, newest))


@dataclass(frozen=True)
class _Ended:
    """A run with an outcome, its file records, and the table's newest version."""

    run: str
    outcome: RunRecord
    names: list[str]
    newest: int


def _ended(opened: OpenedStream, history: History, dead_files: DeadFiles, ended: _Ended) -> KeptRun:
    run, outcome = ended.run, ended.outcome
    records = tuple(undo_location(opened, run, name) for name in ended.names)
    ended_ns = _written_ns([*records, history.done_location(run)])
    since_ns = max(ended_ns, started_ns(run, 0))
    if outcome.status == ABANDONED:
        # An undo adds files that another run removed; that run's record covers them.
        is_staged = not isinstance(outcome, Undone) and _ADDED in ended.names
        names = [_ADDED] if is_staged else []
        return KeptRun(
            run, records, since_ns, _dead(opened, run, names, Reason.ABANDONED, since_ns)
        )
    commit = dead_files.commit_times(run, outcome.version_after, ended.newest)
    if not commit.is_of_run:
        return _uncertain(opened, run, ended.names, records)
    since_ns = max(since_ns, commit.latest_ns)
    names = [name for name in ended.names if name == _REMOVED]
    return KeptRun(run, records, since_ns, _dead(opened, run, names, Reason.REMOVED, since_ns))


def _dead(
    opened: OpenedStream, run: str, names: list[str], reason: Reason, since_ns: int
) -> tuple[DeadFile, ...]:
    return tuple(
        DeadFile(path, size, reason, max(since_ns, row["modified_ms"] * 1_000_000), under_it)
        for name in names
        for row in read_record(opened, run, name)
        .select(["path", "file_bytes", "modified_ms"])
        .to_pylist()
        for path, size, under_it in _stored(row["path"], row["file_bytes"], reason)
    )


def _stored(
    path: str, file_bytes: int, reason: Reason
) -> Iterator[tuple[str, int, frozenset[str]]]:
    """The files of the storage that die with a path, their lengths, and of a vector the path under it.

    The length of a vector counts as 0.

    A run that abandons a vector did not write the data file under it.
    """
    *data, last = stored_files(path)
    if data and reason is Reason.REMOVED:
        yield data[0], file_bytes, frozenset()
    yield last, 0 if data else file_bytes, frozenset([path] if data else [])


def _uncertain(
    opened: OpenedStream, run: str, names: list[str], records: tuple[str, ...]
) -> KeptRun:
    tables = (read_record(opened, run, name) for name in (_REMOVED, _ADDED) if name in names)
    paths = (table["path"].to_pylist() for table in tables)
    doubtful = frozenset(all_stored(path for of in paths for path in of))
    return KeptRun(run, records, _written_ns(records), is_certain=False, doubtful=doubtful)


def _written_ns(places: list[str] | tuple[str, ...]) -> int:
    """The last write time of some files by the storage, nanoseconds; missing files are ignored."""
    latest = 0
    for place in places:
        try:
            latest = max(latest, files.stat(place)[1] * 1_000_000)
        except FileNotFoundError:
            continue
    return latest
