"""A survey of a stream for a reclaim: its dead files, sorted, and their records; nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.reclaim.held_files import held_paths, kept_by
from retention.apply.reclaim.records import KeptRun, runs_with_records
from retention.apply.reclaim.report import Amount
from retention.apply.undo_records import kept_runs, read_record
from retention.context.context import OpenedStream
from retention.core.reclaim import DeadFile, DeadFileDecision, Evidence, Hindrance, decide_dead
from retention.core.vector_paths import VECTOR_MARK, all_stored
from retention.history.runs import history_of
from retention.ports import Snapshot
from retention.storage import files
from retention.stores.dead_files import DeadFiles


@dataclass(frozen=True)
class Survey:
    """The dead files of a stream at one version of its table."""

    opened: OpenedStream
    snapshot: Snapshot
    grace_ns: int
    """The longer of the configuration's grace period and the table's, nanoseconds."""
    cutoff_ns: int
    runs: tuple[KeptRun, ...]
    decision: DeadFileDecision
    held: Mapping[str, set[str]] = field(default_factory=dict)
    """Legal hold in effect → the paths of files that may have a message which it covers."""

    @property
    def dead_files(self) -> DeadFiles:
        """The stream's dead files."""
        return dead_files(self.opened)

    @property
    def log_cutoff_ns(self) -> int:
        """The instant before which log entries may be deleted, nanoseconds since the epoch; 0: they are kept."""
        kept_ns = self.dead_files.log_kept_ns(self.snapshot, self.grace_ns)
        return 0 if kept_ns is None else self.cutoff_ns + self.grace_ns - kept_ns

    @cached_property
    def present(self) -> tuple[DeadFile, ...]:
        """The files that may be deleted and still exist, with their length."""
        return tuple(present(self.dead_files, self.decision.to_delete))

    @cached_property
    def absent(self) -> list[DeadFile]:
        """The files that may be deleted and no longer exist."""
        there = {file.path for file in self.present}
        return [file for file in self.decision.to_delete if file.path not in there]

    def records(self, spared: Collection[str] = ()) -> list[str]:
        """Locations of the records of the runs in `spent`."""
        return [record for run in self.spent(spared) for record in run.records]

    def spent(self, spared: Collection[str] = ()) -> list[KeptRun]:
        """The runs without a dead file to keep: each may be deleted, is live again, or no longer exists.

        Args:
            spared: paths that are kept after all.
        """
        held = {
            file.path
            for reason, held in self.decision.kept.items()
            if reason is not Hindrance.LIVE
            for file in held
        }.union(spared)
        return [
            run
            for run in self.runs
            if run.is_certain and run.since_ns < self.cutoff_ns
            if not any(file.path in held for file in run.dead)
        ]

    @property
    def oldest_ns(self) -> int | None:
        """The time of death of the oldest existing dead file; None: there is none."""
        held = self.decision.kept.items()
        staying = [file for reason, some in held if reason is not Hindrance.LIVE for file in some]
        return min((file.since_ns for file in (*self.present, *staying)), default=None)

    @property
    def kept_by_holds(self) -> dict[str, int] | None:
        """Legal hold → the files past their grace that it keeps; None: none is in effect."""
        kept = self.decision.kept.get(Hindrance.HELD, ())
        return kept_by(self.held, (file.path for file in kept))

    def staying(self) -> dict[str, Amount]:
        """Hindrance → the dead files that are kept."""
        return {
            reason: Amount(len(held), sum(file.file_bytes for file in held))
            for reason, held in self.decision.kept.items()
            if reason is not Hindrance.LIVE
        }


def survey(opened: OpenedStream, now_ns: int) -> Survey:
    """Survey a stream's dead files.

    Args:
        opened: the stream; its table exists.
        now_ns: the instant by which grace periods end, nanoseconds since the epoch.

    Raises:
        DamagedError: a record or an entry of the log cannot be read.
        RefusedError, ForeignRowsError: as `Store.snapshot`.
    """
    snapshot = opened.store.snapshot()
    dead = dead_files(opened)
    grace_ns = grace_of(opened, snapshot)
    history = history_of(opened.warehouse, opened.name)
    runs = tuple(runs_with_records(opened, history, dead, snapshot.version))
    deaths = [file for run in runs for file in run.dead]
    cutoff_ns = now_ns - grace_ns
    removed = (
        read_record(opened, run, "removed")
        for run, names in kept_runs(opened).items()
        if "removed" in names
    )
    may_be = held_paths(opened, snapshot.counters, removed)
    every = set().union(*may_be.values())
    there = {file.path for file in present(dead, (file for file in deaths if file.path in every))}
    held = {hold: paths & there for hold, paths in may_be.items()}
    known = evidence(dead, runs, deaths, snapshot.files, cutoff_ns)
    decision = decide_dead(deaths, replace(known, held=set().union(*held.values())))
    return Survey(opened, snapshot, grace_ns, cutoff_ns, runs, decision, held)


def evidence(
    dead: DeadFiles,
    runs: Iterable[KeptRun],
    deaths: Iterable[DeadFile],
    live: pa.Table,
    cutoff_ns: int,
) -> Evidence:
    """The evidence on some dead files, in a table with these live files."""
    young = dead.young(cutoff_ns)
    paths = pa.array([file.path for file in deaths], pa.string())
    back = paths.filter(pc.is_in(paths, value_set=_stored(live["path"].combine_chunks())))
    doubtful = frozenset(path for run in runs for path in run.doubtful)
    return Evidence(cutoff_ns, set(back.to_pylist()), young.paths, doubtful, young.is_whole)


def _stored(paths: pa.Array) -> pa.Array:
    """The paths of all files of the storage that the paths of live files stand for."""
    under_vectors = paths.filter(pc.match_substring(paths, VECTOR_MARK))
    stored = pa.array(sorted(all_stored(under_vectors.to_pylist())), paths.type)
    return pa.concat_arrays([paths, stored])


def present(dead: DeadFiles, going: Iterable[DeadFile]) -> list[DeadFile]:
    """The dead files among some that still exist, complete or not."""
    candidates = list(going)
    lengths = files.lengths([dead.places(file)[0] for file in candidates])
    return [file for file, length in zip(candidates, lengths, strict=True) if length is not None]


def grace_of(opened: OpenedStream, snapshot: Snapshot) -> int:
    """The retention of a stream's removed files, nanoseconds: the longer of the configuration's and the table's."""
    return max(opened.config.grace_ns, dead_files(opened).kept_ns(snapshot))


def dead_files(opened: OpenedStream) -> DeadFiles:
    """The dead files of a stream."""
    return opened.table_format.dead_files(opened.layout, opened.store)
