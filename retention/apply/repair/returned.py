"""Removing exactly the messages that another writer resurrected because it overlooked a removal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.change import Change
from retention.apply.recorded_run import RecordedRun, recorded_run
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.context.holds import refuse_held
from retention.context.maintenance import maintaining
from retention.core.display import Displayed
from retention.core.inventory import DataFile
from retention.core.json_object import JsonObject
from retention.datafile.parquet import read_columns, stats_table
from retention.datafile.rewrite import RewriteResult, RewriteTask, copy_remaining
from retention.errors import (
    BusyError,
    DamagedError,
    ForeignRowsError,
    RefusedError,
    StalePlanError,
    VerificationError,
)
from retention.history.kinds import ReturnedRemoved
from retention.history.runs import history_of
from retention.plan.run_ranges import ranges_of_files
from retention.ports import Returned, Snapshot
from retention.storage import files
from retention.storage.places import delta_name
from retention.stores.checks import inventory

KIND = "returned"
"""The name of this repair in commands and in the run history."""
ATTEMPTS = 20


@dataclass(frozen=True)
class ReturnedMessages:
    """The resurrected messages of one file."""

    file: DataFile
    ranges: np.ndarray
    """Sequences, first and last, both inclusive, ascending and disjoint; shape (n, 2)."""
    messages: int
    bytes: int
    stays: int
    """The number of other messages in the file."""


@dataclass(frozen=True, repr=False)
class ReturnedRepair(Displayed):
    """The resurrected messages of a stream, and the run that removed them again."""

    stream: str
    commits: tuple[Returned, ...]
    """The commits of other writers that resurrected messages, oldest first."""
    back: tuple[ReturnedMessages, ...]
    run: str | None = None
    """None: nothing was changed."""

    @property
    def messages(self) -> int:
        """The number of resurrected messages."""
        return sum(part.messages for part in self.back)

    @property
    def bytes(self) -> int:
        """The bytes of the resurrected messages, by the broker's accounting."""
        return sum(part.bytes for part in self.back)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.commits)

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return {
            "stream": self.stream,
            "repair": KIND,
            "run": self.run,
            "removed_messages": self.messages,
            "removed_bytes": self.bytes,
            "commits": [vars(commit) for commit in self.commits],
            "files": [
                {"path": part.file.path, "messages": part.messages, "seqs": part.ranges.tolist()}
                for part in self.back
            ],
        }


def find_returned_messages(opened: OpenedStream) -> ReturnedRepair:
    """Find the messages that other writers have resurrected since our last commit; nothing is changed.

    Raises:
        RefusedError: their files were rewritten since.
        DamagedError: a file needed to identify resurrected messages is gone.
    """
    if not opened.table.exists():
        return ReturnedRepair(opened.name, (), ())
    _, repair = _find(opened)
    return repair


def repair_returned_messages(opened: OpenedStream) -> ReturnedRepair:
    """Remove resurrected messages in one commit, under the stream's maintenance lease; it can be undone like any run.

    Raises:
        RefusedError, DamagedError: as `find_returned_messages`.
        BusyError: another run holds the lease, or other commits keep coming first.
        VerificationError: a copy differs from the expected remainder; nothing was committed.
    """
    if not opened.table.exists():
        return ReturnedRepair(opened.name, (), ())
    history = history_of(opened.warehouse, opened.name)
    with maintaining(opened):
        settle_interrupted(opened, history)
        for _ in range(ATTEMPTS):
            snapshot, repair = _find(opened)
            if not repair.commits:
                return repair
            try:
                return _removed(opened, snapshot, repair)
            except StalePlanError:
                continue
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times another writer came first; nothing was changed; try again later"
    )


def _find(opened: OpenedStream) -> tuple[Snapshot, ReturnedRepair]:
    snapshot, commits = opened.store.resurrected_files()
    back = [part for commit in commits for part in _back_by(opened, snapshot, commit)]
    return snapshot, ReturnedRepair(opened.name, commits, tuple(back))


def _back_by(opened: OpenedStream, snapshot: Snapshot, commit: Returned) -> list[ReturnedMessages]:
    """The messages that one commit resurrected, by file."""
    made = snapshot.files.filter(pc.is_in(snapshot.files["path"], pa.array(commit.made)))
    if made.num_rows != len(commit.made):
        raise _rewritten_since(opened, commit)
    back = []
    came_back = _returned_test(opened, commit)
    for file in opened.store.data_files(made):
        rows, _ = read_columns(file, ("seq", "size"))
        seqs = rows["seq"].to_numpy()
        came = came_back(seqs)
        if came.any():
            size = int(rows["size"].to_numpy()[came].sum())
            count = int(came.sum())
            back.append(ReturnedMessages(file, _ranges(seqs[came]), count, size, len(seqs) - count))
    return back


def _rewritten_since(opened: OpenedStream, commit: Returned) -> RefusedError:
    before, table = commit.version - 1, opened.layout.messages
    return RefusedError(
        f"{opened.name}: what version {commit.version}, by {commit.program}, made of removed files was rewritten "
        f"since, {commit.made[0]} among it; nothing was changed; run RESTORE TABLE {delta_name(table)} TO VERSION "
        f"AS OF {before} in Spark, or DeltaTable({table!r}).restore({before}) of deltalake; both take back what others "
        "wrote since"
    )


def _returned_test(opened: OpenedStream, commit: Returned) -> Callable[[np.ndarray], np.ndarray]:
    """A function that masks the resurrected sequences in a file that a commit made.

    The removed source files identify them, or otherwise the live ones: a commit makes [1 2 3 4] from [1 2], which was
    removed, and [3 4]. 1 and 2 are resurrected: they are in the former, and not in the latter.

    Raises:
        DamagedError: neither set of files is complete.
    """
    gone = _sequences(opened, commit.removed)
    if gone is not None:
        return partial(np.isin, test_elements=gone)
    there = _sequences(opened, commit.replaced)
    if there is not None:
        return partial(np.isin, test_elements=there, invert=True)
    raise DamagedError(
        f"{opened.name}: some files from which version {commit.version} was made, such as {commit.removed[0]}, no "
        "longer exist, so it is unknown which messages reappeared; nothing was changed; restore them "
        "from a copy, then run again"
    )


def _sequences(opened: OpenedStream, paths: Sequence[str]) -> np.ndarray | None:
    """The sequences in files that are no longer in the table; None: one of them is gone from the storage as well."""
    layout = opened.layout
    data_files = [layout.data_file((path, 0, 0), layout.live(path)) for path in paths]
    if None in files.lengths([file.location for file in data_files]):
        return None
    parts = [read_columns(file, ("seq",))[0]["seq"].to_numpy() for file in data_files]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _ranges(seqs: np.ndarray) -> np.ndarray:
    """Ascending sequences as ranges, shape (n, 2): [3 4 5 9] → [[3 5] [9 9]]."""
    ends = np.flatnonzero(np.diff(seqs) > 1)
    first = seqs[np.concatenate([[0], ends + 1])]
    return np.stack([first, seqs[np.append(ends, len(seqs) - 1)]], axis=1)


def _removed(opened: OpenedStream, snapshot: Snapshot, repair: ReturnedRepair) -> ReturnedRepair:
    refuse_held(opened, snapshot.counters, "this repair")
    paths = pa.array([part.file.path for part in repair.back], pa.string())
    leaving = snapshot.files.filter(pc.is_in(snapshot.files["path"], paths))
    whole, _ = inventory.describe(opened.store.data_files(leaving), leaving)
    lost = {part.file.path: part.ranges for part in repair.back}
    with recorded_run(opened, snapshot) as run:
        change = Change(
            remove=whole,
            add=_copies(run, whole, repair),
            ranges=[ranges_of_files(whole, lost)],
            metadata={"repair": KIND},
        )
        intent = ReturnedRemoved(
            run=run.name,
            as_of_ns=opened.clock(),
            removed_messages=repair.messages,
            removed_bytes=repair.bytes,
            commits=[commit.version for commit in repair.commits],
        )
        try:
            run.commit(intent, change)
        except ForeignRowsError as error:
            # Only a newer version than this one is refused: another writer came first.
            raise StalePlanError(str(error)) from error
    return ReturnedRepair(opened.name, repair.commits, repair.back, run.name)


def _copies(run: RecordedRun, whole: pa.Table, repair: ReturnedRepair) -> pa.Table:
    """Stage the files without resurrected messages, shape `FILE_STATS`."""
    written = [
        copy_remaining(RewriteTask(part.file, (run.stage_copy(part.file),), part.ranges))
        for part in repair.back
        if part.stays
    ]
    _check(whole, written, repair)
    return stats_table([row for copied in written for row in copied.stats])


def _check(whole: pa.Table, written: Sequence[RewriteResult], repair: ReturnedRepair) -> None:
    """Compare the copies, as read back, with the expected remainder."""
    messages = sum(copied.messages for copied in written)
    octets = sum(copied.bytes for copied in written)
    for name, held, gone in (
        ("messages", messages, repair.messages),
        ("bytes", octets, repair.bytes),
    ):
        expected = pc.sum(whole[name], min_count=0).as_py() - gone
        if held != expected:
            raise VerificationError(
                f"{repair.stream}: copies without the reappeared messages hold {held:,} {name} instead of "
                f"{expected:,}; nothing was committed; run again, and report it if it happens again"
            )
