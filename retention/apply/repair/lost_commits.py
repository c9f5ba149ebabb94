"""Repeating commits that another program overwrote in the log of a Delta table on a local disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.change import Change
from retention.apply.recorded_run import recorded_run
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.context.holds import refuse_held
from retention.context.maintenance import maintaining
from retention.core.counter_names import BATCH, NEXT_SEQ, OPEN_BASE, REMOVED, named
from retention.core.counters import (
    ARCHIVE_HEAD,
    DROPPED,
    EPOCH,
    GENERATION,
    HISTORY_HEAD,
    RUN,
    Counters,
)
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.table_updates import RaiseCounters
from retention.errors import BusyError, ConflictError, StalePlanError
from retention.history.kinds import LostCommitted
from retention.history.runs import history_of
from retention.ports import LostCommit, Snapshot
from retention.schemas.files import LOGGED_FILES
from retention.stores.checks.swap import overlapping
from retention.stores.lease import lease

KIND = "lost-commit"
"""The name of this repair in commands and in the run history."""
ATTEMPTS = 20
LEASE_WAIT_S = 60.0
_BEGINNINGS = frozenset({EPOCH, DROPPED, GENERATION})
"""Counters of a commit that restart other counters: a purge of a topic, a drop, the table after it."""


@dataclass(frozen=True)
class CommittedAgain:
    """A lost commit, and the part of it that can be repeated."""

    commit: LostCommit
    added: pa.Table
    """Its files to add again, shape `FILE_STATS`."""
    removed: pa.Table
    """The files to remove again, shape `LOGGED_FILES`."""
    counters: Mapping[str, int]
    """Name → value of the counters to raise."""
    reason: str | None = None
    """The reason why part of it is not repeated; None: all of it is."""
    run: str | None = None
    """The run that repeated it; None: nothing was changed."""

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return {
            "version": self.commit.version,
            "lost_run": self.commit.metadata.get("run"),
            "overwritten_by": self.commit.program,
            "messages": pc.sum(self.added["messages"], min_count=0).as_py(),
            "bytes": pc.sum(self.added["bytes"], min_count=0).as_py(),
            "first_seq": pc.min(self.added["min_seq"]).as_py(),
            "last_seq": pc.max(self.added["max_seq"]).as_py(),
            "files_added": self.added.num_rows,
            "files_removed": self.removed.num_rows,
            "files_missing": list(self.commit.missing),
            "reason": self.reason,
            "run": self.run,
        }


@dataclass(frozen=True, repr=False)
class LostCommitRepair(Displayed):
    """The lost commits of a stream, oldest first."""

    stream: str
    commits: tuple[CommittedAgain, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.commits)

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return {
            "stream": self.stream,
            "repair": KIND,
            "commits": [commit.as_json() for commit in self.commits],
        }


def find_lost_commits(opened: OpenedStream) -> LostCommitRepair:
    """Find our commits that another program has overwritten; nothing is changed.

    Raises:
        RefusedError, DamagedError: as `Repairable.lost_commits`.
    """
    if not opened.table.exists():
        return LostCommitRepair(opened.name)
    snapshot, lost = opened.store.lost_commits()
    return LostCommitRepair(opened.name, tuple(_again(snapshot, commit) for commit in lost))


def repair_lost_commits(opened: OpenedStream) -> LostCommitRepair:
    """Repeat overwritten commits, each as a commit of its own, under both leases of the stream.

    A part that cannot be repeated is reported: its files are left in place, and its counters are still raised, so that
    no sequence is assigned twice.

    Raises:
        RefusedError, DamagedError: as `Repairable.lost_commits`.
        BusyError: another run is in progress, or other commits keep coming first.
    """
    if not opened.table.exists():
        return LostCommitRepair(opened.name)
    history = history_of(opened.warehouse, opened.name)
    done: list[CommittedAgain] = []
    with (
        maintaining(opened, at_least_s=LEASE_WAIT_S),
        lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S),
    ):
        for _ in range(ATTEMPTS):
            snapshot, lost = opened.store.lost_commits()
            if not lost:
                # Not earlier: an interrupted run counts as committed once its commit is repeated.
                settle_interrupted(opened, history)
                return LostCommitRepair(opened.name, tuple(done))
            try:
                done.append(_commit(opened, snapshot, _again(snapshot, lost[0])))
            except (ConflictError, StalePlanError):
                continue
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times another writer came first; pause the other writers, then try again"
    )


def _again(snapshot: Snapshot, commit: LostCommit) -> CommittedAgain:
    """Decide which part of a lost commit can be repeated on a table."""
    wanted = pa.array(commit.removed, pa.string())
    removed = snapshot.files.filter(pc.is_in(snapshot.files["path"], value_set=wanted))
    removed = removed.select(LOGGED_FILES.names).cast(LOGGED_FILES)
    reason = _reason(snapshot, commit, removed)
    added = commit.added
    if reason is not None:
        removed = LOGGED_FILES.empty_table()
        added = _unmet(snapshot, _new_messages(snapshot, commit), removed)
    return CommittedAgain(commit, added, removed, _raised(snapshot, commit), reason)


def _reason(snapshot: Snapshot, commit: LostCommit, removed: pa.Table) -> str | None:
    """The reason why a commit cannot be repeated as a whole; None: it can."""
    if _BEGINNINGS & commit.counters.keys():
        return "it purged or dropped the stream, or began it anew: ask for that again"
    if removed.num_rows != len(commit.removed):
        gone = len(commit.removed) - removed.num_rows
        return f"{gone} of the files that it removed are no longer in the table: the next pass decides on the others"
    if commit.missing:
        return (
            f"{len(commit.missing)} of its files no longer exist, {commit.missing[0]} the first: restore them from a "
            "copy first, or publish their messages again"
        )
    if _unmet(snapshot, commit.added, removed).num_rows != commit.added.num_rows:
        return "the table has messages with the same sequences by now"
    return None


def _new_messages(snapshot: Snapshot, commit: LostCommit) -> pa.Table:
    """The files of a commit that contain only its own new messages, and no copies of removed ones."""
    if not commit.removed:
        return commit.added
    next_seqs = snapshot.counters.next_seq
    is_new = [
        low >= next_seqs.get(partition, 0)
        for partition, low in zip(
            commit.added["partition"].to_pylist(), commit.added["min_seq"].to_pylist(), strict=True
        )
    ]
    return commit.added.filter(pa.array(is_new, pa.bool_()))


def _unmet(snapshot: Snapshot, added: pa.Table, removed: pa.Table) -> pa.Table:
    """The files with sequences that do not overlap those of any kept file."""
    goes = pc.is_in(snapshot.files["path"], value_set=removed["path"].combine_chunks())
    met = set(_met(added, snapshot.files.filter(pc.invert(goes)), snapshot.files.filter(goes)))
    return added.filter(pc.invert(pc.is_in(added["path"], pa.array(sorted(met), pa.string()))))


def _met(added: pa.Table, stays: pa.Table, replaced: pa.Table) -> Iterator[str]:
    for partition in added["partition"].unique().to_pylist():
        tables = (
            table.filter(pc.equal(table["partition"], partition))
            for table in (added, stays, replaced)
        )
        for row in overlapping(*tables):
            yield row["path"]


def _raised(snapshot: Snapshot, commit: LostCommit) -> dict[str, int]:
    """The counters of a commit that are higher than the table's, except those that would restart others.

    The newest manifest of the archive is not an increasing number: it is taken from the commit, since nothing can have
    been archived after it; a table with a lost commit is refused.
    """
    known = _named(snapshot.counters)
    raised = {
        name: value
        for name, value in commit.counters.items()
        if name not in _BEGINNINGS | {RUN, ARCHIVE_HEAD, HISTORY_HEAD}
        and value > known.get(name, -1)
    }
    head = commit.counters.get(ARCHIVE_HEAD, snapshot.counters.archive_head)
    return raised if head == snapshot.counters.archive_head else {**raised, ARCHIVE_HEAD: head}


def _named(counters: Counters) -> dict[str, int]:
    kinds: dict[str, Mapping[int, int] | Mapping[str, int]] = {
        NEXT_SEQ: counters.next_seq,
        OPEN_BASE: counters.open_base,
        REMOVED: counters.removed,
        BATCH: counters.batches,
    }
    return named(kinds) | dict(counters.edits)


def _commit(opened: OpenedStream, snapshot: Snapshot, again: CommittedAgain) -> CommittedAgain:
    refuse_held(opened, snapshot.counters, "this repair")
    commit = again.commit
    with recorded_run(opened, snapshot) as run:
        again = replace(again, run=run.name)
        metadata = {"repair": KIND, "token": commit.token}
        if again.reason is None:
            metadata["again"] = str(commit.metadata.get("run"))
        intent = LostCommitted(
            run=run.name, as_of_ns=opened.clock(), removed_messages=0, commit=again.as_json()
        )
        change = Change(
            remove=again.removed,
            add=again.added,
            updates=[RaiseCounters(again.counters)],
            metadata=metadata,
            data_change=commit.data_change,
            again=commit,
        )
        run.commit(intent, change)
    return again
