"""Removing again exactly what another writer brought back by overlooking a removal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.recover import basis, settle_interrupted
from retention.apply.undo_records import keep_for_undo
from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.datafile.parquet import read_columns, stats_table
from retention.datafile.rewrite import RewriteResult, RewriteTask, copy_remaining
from retention.errors import (
    BusyError,
    CommitUnknownError,
    DamagedError,
    ForeignRowsError,
    RefusedError,
    StalePlanError,
    VerificationError,
)
from retention.history.runs import REPAIR, History, history_of
from retention.ports import Returned, Snapshot, Swap
from retention.storage import files
from retention.stores.checks import inventory
from retention.stores.layout import Layout
from retention.stores.lease import lease
from schemas.files import LOGGED_FILES

KIND = "returned"
"""What commands and the run history call this repair."""
ATTEMPTS = 20


@dataclass(frozen=True)
class ReturnedMessages:
    """What of one file came back."""

    file: DataFile
    ranges: np.ndarray
    """Sequences, first and last, both inclusive, ascending and disjoint; shape (n, 2)."""
    messages: int
    bytes: int
    stays: int
    """How many other messages the file has."""


@dataclass(frozen=True)
class ReturnedRepair:
    """What came back to a stream, and the run that removed it again."""

    stream: str
    commits: tuple[Returned, ...]
    """Of other writers, oldest first."""
    back: tuple[ReturnedMessages, ...]
    run: str | None = None
    """None: nothing was changed."""

    @property
    def messages(self) -> int:
        """How many came back."""
        return sum(one.messages for one in self.back)

    @property
    def bytes(self) -> int:
        """Their bytes, by the broker's accounting."""
        return sum(one.bytes for one in self.back)

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "stream": self.stream,
            "repair": KIND,
            "run": self.run,
            "removed_messages": self.messages,
            "removed_bytes": self.bytes,
            "commits": [vars(one) for one in self.commits],
            "files": [
                {"path": one.file.path, "messages": one.messages, "seqs": one.ranges.tolist()}
                for one in self.back
            ],
        }


def find_returned_messages(opened: OpenedStream) -> ReturnedRepair:
    """Find what other writers have brought back since our own last commit; nothing is changed.

    Raises:
        RefusedError: what they made was rewritten since.
        DamagedError: a file that tells what came back is gone.
    """
    if not opened.store.exists():
        return ReturnedRepair(opened.name, (), ())
    _, found = _look(opened)
    return found


def repair_returned_messages(opened: OpenedStream) -> ReturnedRepair:
    """Remove what came back, as one commit, under the stream's maintenance lease; it can be undone like any run.

    Raises:
        RefusedError, DamagedError: as `find_returned_messages`.
        BusyError: another run holds the lease, or others keep coming first.
        VerificationError: a copy does not hold what has to stay; nothing was committed.
    """
    if not opened.store.exists():
        return ReturnedRepair(opened.name, (), ())
    history = history_of(opened.warehouse, opened.name)
    with lease(opened.root, "maintenance", opened.clock):
        settle_interrupted(opened, history)
        for _ in range(ATTEMPTS):
            snapshot, found = _look(opened)
            if not found.commits:
                return found
            try:
                return _removed(opened, history, snapshot, found)
            except StalePlanError:
                continue
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times another writer came first; nothing was changed; try again later"
    )


def _look(opened: OpenedStream) -> tuple[Snapshot, ReturnedRepair]:
    snapshot, commits = opened.store.returned()
    back = [one for commit in commits for one in _back_by(opened, snapshot, commit)]
    return snapshot, ReturnedRepair(opened.name, commits, tuple(back))


def _back_by(opened: OpenedStream, snapshot: Snapshot, commit: Returned) -> list[ReturnedMessages]:
    """What one commit brought back, by file."""
    made = snapshot.files.filter(pc.is_in(snapshot.files["path"], pa.array(commit.made)))
    if made.num_rows != len(commit.made):
        raise RefusedError(
            f"{opened.name}: what version {commit.version}, by {commit.program}, made of removed files was rewritten "
            f"since, {commit.made[0]} among it; nothing was changed; RESTORE the table to version {commit.version - 1} "
            "with Spark or deltalake, and bring what came since again"
        )
    found = []
    came_back = _telling(opened, commit)
    for file in opened.store.data_files(made):
        rows, _ = read_columns(file, ("seq", "size"))
        seqs = rows["seq"].to_numpy()
        came = came_back(seqs)
        if came.any():
            size = int(rows["size"].to_numpy()[came].sum())
            count = int(came.sum())
            found.append(
                ReturnedMessages(file, _ranges(seqs[came]), count, size, len(seqs) - count)
            )
    return found


def _telling(opened: OpenedStream, commit: Returned) -> Callable[[np.ndarray], np.ndarray]:
    """What tells which sequences of a file that a commit made came back: the files that were gone, or else the others.

    Raises:
        DamagedError: neither are all there.
    """
    gone = _sequences(opened, commit.removed)
    if gone is not None:
        return partial(np.isin, test_elements=gone)
    there = _sequences(opened, commit.replaced)
    if there is not None:
        return partial(np.isin, test_elements=there, invert=True)
    raise DamagedError(
        f"{opened.name}: of the files that version {commit.version} was made of, {commit.removed[0]} among them, some "
        "are not in the storage any more, so that nobody can tell what came back; nothing was changed; bring them back "
        "from a copy, then run again"
    )


def _sequences(opened: OpenedStream, paths: Sequence[str]) -> np.ndarray | None:
    """The sequences in files that are not in the table any more; None: one of them is gone from the storage, too."""
    layout = Layout(opened.root, opened.name)
    found = [layout.data_file((path, 0, 0), layout.live(path)) for path in paths]
    if None in files.lengths([file.location for file in found]):
        return None
    parts = [read_columns(file, ("seq",))[0]["seq"].to_numpy() for file in found]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _ranges(seqs: np.ndarray) -> np.ndarray:
    """Ascending sequences as ranges, shape (n, 2)."""
    ends = np.flatnonzero(np.diff(seqs) > 1)
    first = seqs[np.concatenate([[0], ends + 1])]
    return np.stack([first, seqs[np.append(ends, len(seqs) - 1)]], axis=1)


def _removed(
    opened: OpenedStream, history: History, snapshot: Snapshot, found: ReturnedRepair
) -> ReturnedRepair:
    paths = pa.array([one.file.path for one in found.back], pa.string())
    leaving = snapshot.files.filter(pc.is_in(snapshot.files["path"], paths))
    whole, _ = inventory.describe(opened.store.data_files(leaving), leaving)
    run = history.name_run(opened.clock())
    record = {
        "stream": opened.name,
        "kind": REPAIR,
        "repair": KIND,
        "as_of_ns": opened.clock(),
        "removed_messages": found.messages,
        "removed_bytes": found.bytes,
        "commits": [commit.version for commit in found.commits],
    }
    if snapshot.counters.epoch:
        record["epoch"] = snapshot.counters.epoch
    copies = [
        RewriteTask(one.file, (opened.store.stage_copy(one.file),), one.ranges)
        for one in found.back
        if one.stays
    ]
    try:
        written = [copy_remaining(copy) for copy in copies]
        _check(opened, whole, written, found)
        added = stats_table([row for one in written for row in one.stats])
        keep_for_undo(opened, run, whole, added)
        history.begin(run, record | basis(snapshot) | {"status": "begun"})
        swap = Swap(leaving.select(LOGGED_FILES.names), added, {"run": run, "repair": KIND})
        version = _commit(opened, swap, snapshot)
    except CommitUnknownError:
        raise
    except BaseException:
        opened.store.discard(_targets(copies))
        raise
    history.finish(run, record | {"status": "done", "version_after": version})
    opened.store.finish()
    return ReturnedRepair(opened.name, found.commits, found.back, run)


def _commit(opened: OpenedStream, swap: Swap, snapshot: Snapshot) -> int:
    try:
        return opened.store.commit(swap, snapshot)
    except ForeignRowsError as error:
        # Only a newer version than the one looked at is refused: another writer has come first.
        raise StalePlanError(str(error)) from error


def _targets(copies: Iterable[RewriteTask]) -> list[str]:
    return [target.path for copy in copies for target in copy.targets]


def _check(
    opened: OpenedStream, whole: pa.Table, written: Sequence[RewriteResult], found: ReturnedRepair
) -> None:
    """Hold what the copies have, as read back, against what has to stay."""
    for name, gone in (("messages", found.messages), ("bytes", found.bytes)):
        expected = pc.sum(whole[name], min_count=0).as_py() - gone
        held = sum(copied.total(name) for copied in written)
        if held != expected:
            raise VerificationError(
                f"{opened.name}: copies without what came back hold {held:,} {name} instead of {expected:,}; nothing "
                "was committed; run again, and report it if it stays"
            )
