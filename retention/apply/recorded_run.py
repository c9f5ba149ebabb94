"""A run as one transaction: recorded before and after its commit, and committed against all that it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import pyarrow as pa

from retention.apply.archive import copies_of, terms_of
from retention.apply.change import Change
from retention.apply.undo_records import keep_for_undo
from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.row_numbers import rows_at
from retention.core.table_requirements import (
    AssertConsumerEdits,
    AssertEpoch,
    AssertHistoryHead,
    AssertHoldEdits,
)
from retention.core.table_updates import (
    SetConsumerEdits,
    SetHistoryHead,
    set_removed,
)
from retention.core.wording import counted
from retention.errors import CommitUnknownError
from retention.history.chain import counter_of
from retention.history.initiator import initiator
from retention.history.record import Basis, RunRecord
from retention.history.runs import history_of
from retention.plan.run_ranges import highest_removed
from retention.ports import Snapshot, Swap
from retention.schemas.bounds import MAX_SEQ
from retention.schemas.files import FILE_STATS, LOGGED_FILES

Record = TypeVar("Record", bound=RunRecord)


class RecordedRun:
    """A run in progress, under the stream's maintenance lease."""

    def __init__(self, opened: OpenedStream, snapshot: Snapshot, name: str) -> None:
        """Begin a run on a version of the table; nothing is recorded yet."""
        self.name = name
        self.snapshot = snapshot
        self.outcome: RunRecord | None = None
        """The record of the outcome, once the run is committed; a caller may set another one."""
        self._opened = opened
        self._history = history_of(opened.warehouse, opened.name)
        self._staged: list[str] = []
        self._highest: dict[int, int] = {}
        self._link = 0
        self._of_intent: Mapping[str, object] = {}
        self._makes_again = False
        self._files = 0

    def stage(
        self, partition: int, segment: int, count: int = 1, *, merged: bool = False
    ) -> tuple[DataFile, ...]:
        """New files of a segment, as `Store.stage`; they are deleted unless the run commits them, or may have."""
        targets = self._opened.store.stage(partition, segment, count, merged=merged)
        self._staged += (target.path for target in targets)
        return targets

    def stage_copy(self, source: DataFile) -> DataFile:
        """A new file to replace `source`, as from `stage`."""
        target = self._opened.store.stage_copy(source)
        self._staged.append(target.path)
        return target

    def stage_vector(self, source: DataFile) -> DataFile:
        """The file of `source` under a new vector, as from `stage`."""
        target = self._opened.store.stage_vector(source)
        self._staged.append(target.path)
        return target

    def discard(self, paths: Sequence[str]) -> None:
        """Delete some staged files that the run will not commit."""
        self._opened.store.discard(paths)

    def commit(self, intent: Record, change: Change) -> Record:
        """Record the intent, with all that an undo needs, and commit the change; return the outcome.

        Args:
            intent: the record, without the fields read from the table: its stream, the version it is based on, and,
                unless given, its epoch.
            change: everything that is committed.

        Raises:
            StalePlanError: the table has changed since the change was made.
            ConflictError: another commit came first, and the change assigns sequences.
            BusyError: other commits kept coming first.
            VerificationError: a staged file differs from what was written.
            CommitUnknownError: the storage did not say whether the commit happened.
        """
        return self.commit_begun(self.begin(intent, change), change)

    def begin(self, intent: Record, change: Change) -> Record:
        """Record the intent of a run that writes something before `commit_begun`; return the full intent."""
        counters = self.snapshot.counters
        intent = intent.updated(
            run=self.name,
            stream=self._opened.name,
            basis=_basis(self.snapshot),
            who=initiator(),
        )
        if "epoch" not in intent.model_fields_set:
            intent = intent.updated(epoch=counters.epoch)
        if change.archived is not None:
            intent = intent.updated(archived=copies_of(change.archived))
        if change.is_undoable:
            ranges = self._counted(change.ranges or ())
            keep_for_undo(self._opened, self.name, change.remove, change.add, ranges)
        intent = self._history.chained(intent, counters.history_head)
        link = self._history.begin(intent)
        self._link = counter_of(link)
        self._of_intent = {
            "who": intent.who,
            "chain": intent.chain,
            "link": link,
            "commitments": intent.commitments,
            "salts": intent.salts,
        }
        return intent

    def commit_begun(self, intent: Record, change: Change) -> Record:
        """Commit a change with an intent that `begin` has recorded; return the outcome.

        Raises:
            RetentionError: as `commit`.
        """
        swap = self._swap(change)
        self._files = swap.add.num_rows
        version = self._opened.store.commit(swap, self.snapshot)
        self._staged = []
        outcome = intent.ended(version)
        self.outcome = outcome
        self._makes_again = change.again is not None
        return outcome

    def finish(self) -> None:
        """Record the outcome of a committed run; a run that committed nothing has none."""
        if self.outcome is None:
            return
        self._history.finish(self.outcome.updated(**self._of_intent))
        if not self._makes_again:
            # A table with lost commits cannot be finished; they are committed again one by one.
            self._opened.store.finish()

    def abandon(self) -> None:
        """Delete the staged files of a run that was not committed."""
        if self._staged:
            self.discard(self._staged)

    def unknown(self, error: CommitUnknownError) -> CommitUnknownError:
        """The error of a run that may have committed."""
        return CommitUnknownError(
            f"{error}; {counted(self._files, 'staged file')} of run {self.name} {'is' if self._files == 1 else 'are'} "
            "kept, and the stream's next run finds out whether it committed"
        )

    def _swap(self, change: Change) -> Swap:
        """The change as a swap, with every requirement that the snapshot implies."""
        counters = self.snapshot.counters
        edits, archived = counters.consumers, terms_of(change.archived)
        removed = [] if change.begins_epoch else set_removed(change.stepped_over, self._highest)
        return Swap(
            remove=change.remove.select(LOGGED_FILES.names),
            add=pa.concat_tables([change.add.select(FILE_STATS.names), change.publish]),
            metadata={"run": self.name, **change.metadata},
            requirements=[
                AssertEpoch(counters.epoch),
                AssertHoldEdits(counters.holds),
                *([AssertConsumerEdits(edits)] if change.asks_consumers else ()),
                *archived.requirements,
                *change.requirements,
                AssertHistoryHead(counters.history_head),
            ],
            updates=[
                *change.updates,
                SetHistoryHead(self._link),
                *archived.updates,
                *removed,
                *([SetConsumerEdits(edits)] if change.asks_consumers else ()),
            ],
            data_change=change.data_change,
            again=change.again,
        )

    def _counted(self, ranges: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Pass the ranges on, and record the highest possible sequence of each partition."""
        for table in ranges:
            ends = table.select(["partition", "last_seq"])
            possible = rows_at(ends, np.flatnonzero(ends["last_seq"].to_numpy() <= MAX_SEQ))
            for partition, seq in highest_removed(possible).items():
                self._highest[partition] = max(seq, self._highest.get(partition, seq))
            yield table


@contextmanager
def recorded_run(
    opened: OpenedStream, snapshot: Snapshot, name: str | None = None
) -> Iterator[RecordedRun]:
    """Run a block as one transaction: its staged files are committed together or deleted, and its outcome is recorded.

    If the storage does not say whether the commit happened, nothing is deleted until the next run reads the table. An
    error after the commit leaves the run without an outcome, which the next run settles.

    Args:
        opened: the stream, whose maintenance lease is held.
        snapshot: the version of the table on which the run is based.
        name: the run's name; None: a new one.

    Raises:
        CommitUnknownError: the storage did not say whether the commit happened.
    """
    history = history_of(opened.warehouse, opened.name)
    run = RecordedRun(opened, snapshot, name or history.name_run(opened.clock()))
    try:
        with labelled(run=run.name):
            yield run
    except CommitUnknownError as error:
        raise run.unknown(error) from error
    except BaseException:
        run.abandon()
        raise
    run.finish()


def _basis(snapshot: Snapshot) -> Basis:
    """The state of the table on which a run is about to commit, for the run history."""
    return Basis(table_id=snapshot.table_id, version=snapshot.version)
