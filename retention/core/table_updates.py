"""Updates of a commit: the counters that it sets beside its files, how each is checked, and what it is called in logs.

An update is any frozen type with `check`, `counters` and `assigns_sequences`; stores know none by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counter_names import BATCH, NEXT_SEQ, OPEN_BASE, REMOVED, name_of
from retention.core.inventory import (
    ARCHIVE_HEAD,
    CLAIMS,
    CONSUMERS,
    DROPPED,
    EPOCH,
    GENERATION,
    RELEASED,
    STAGING_CLAIMS,
)
from retention.core.table_requirements import PLAN_AGAIN, TableState
from retention.errors import ConflictError, RefusedError, StalePlanError
from schemas.bounds import MAX_SEQ


class TableUpdate(Protocol):
    """A change of a table's counters, part of a commit."""

    @property
    def assigns_sequences(self) -> bool:
        """Whether a rival's commit in between makes the update wrong, so that it is tried once."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """Name → value of each counter that the update sets (`counter_names`)."""
        ...

    def check(self, state: TableState) -> None:
        """Hold the update against the table that it is about to change.

        Raises:
            ConflictError: a counter would fall.
            StalePlanError: what stays in the table does not let it.
            RefusedError: a counter would leave the numbers that messages can have.
        """
        ...


@dataclass(frozen=True)
class SetNextSeq:
    """The next sequence of a partition."""

    partition: int
    seq: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {name_of(NEXT_SEQ, self.partition): self.seq}

    def check(self, state: TableState) -> None:
        """Refuse to give sequences out again, or such as no message can have.

        Raises:
            ConflictError: the table's is higher.
            RefusedError: it is beyond the last one.
        """
        known = state.in_epoch.next_seq.get(self.partition, 0)
        _refuse_fall(state, f"next sequence of partition {self.partition}", known, self.seq)
        _refuse_beyond(state, self.seq)


@dataclass(frozen=True)
class SetOpenBase:
    """The base of the segment of a partition that appends go to."""

    partition: int
    base: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {name_of(OPEN_BASE, self.partition): self.base}

    def check(self, state: TableState) -> None:
        """Refuse to open a segment again.

        Raises:
            ConflictError: the table's is higher.
            RefusedError: it is beyond the last sequence.
        """
        known = state.in_epoch.open_base.get(self.partition, 0)
        _refuse_fall(state, f"open base of partition {self.partition}", known, self.base)
        _refuse_beyond(state, self.base)


@dataclass(frozen=True)
class SetBatch:
    """The number of the last batch of a writer, which makes each of its batches count once."""

    writer: str
    number: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {name_of(BATCH, self.writer): self.number}

    def check(self, state: TableState) -> None:
        """Refuse a batch that is there already.

        Raises:
            ConflictError: the table has it, or a later one.
        """
        last = state.in_epoch.batches.get(self.writer)
        if last is not None and self.number <= last:
            raise ConflictError(
                f"stream {state.stream}: batch {last} of writer {self.writer} is there already, so batch {self.number} "
                "was not written again"
            )


@dataclass(frozen=True)
class SetRemoved:
    """The highest sequence of a partition that the commit removes: the table's is that, unless it is higher already."""

    partition: int
    seq: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {name_of(REMOVED, self.partition): self.seq}

    def check(self, state: TableState) -> None:
        """Refuse a sequence that no message can have.

        Raises:
            RefusedError: it is beyond the last one.
        """
        _refuse_beyond(state, self.seq + 1)


@dataclass(frozen=True)
class SetConsumerEdits:
    """The number of times that a consumer was created, edited or deleted.

    A commit that rests on the number goes with `AssertConsumerEdits`.
    """

    count: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {CONSUMERS: self.count}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement says what the number was."""


@dataclass(frozen=True)
class SetRowTombstones:
    """The number of the row tombstones' record in force; a commit that rests on it goes with `AssertRowTombstones`."""

    number: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {RELEASED: self.number}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement says which record was in force."""


@dataclass(frozen=True)
class SetClaims:
    """The numbers of claims on dead files, and of those on staged files; each goes with `AssertClaims`."""

    count: int
    staging: int
    """The number of claims that name files which were staged and never committed."""
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counters that the update sets, by name."""
        return {CLAIMS: self.count, STAGING_CLAIMS: self.staging}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement says what the numbers were."""


@dataclass(frozen=True)
class SetArchiveHead:
    """The number of the manifest that names the files which the commit removes; goes with `AssertArchiveHead`."""

    number: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {ARCHIVE_HEAD: self.number}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement says which manifest was the newest."""


@dataclass(frozen=True)
class SetEpoch:
    """Another epoch than the one before: it begins, or one that ended goes on, and only its own counters count."""

    number: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {EPOCH: self.number}

    def check(self, state: TableState) -> None:
        """Refuse if a file stays with sequences that the epoch would give out again.

        Raises:
            StalePlanError: naming one.
        """
        for partition in state.stays["partition"].unique().to_pylist():
            there = state.stays.filter(pc.equal(state.stays["partition"], partition))
            next_seq = state.sets.get(name_of(NEXT_SEQ, partition), 0)
            beyond = _reaching(there, next_seq)
            if len(beyond):
                raise StalePlanError(
                    f"stream {state.stream}: {beyond[0].as_py()} came meanwhile, and offsets cannot begin again "
                    f"beside it; {PLAN_AGAIN}"
                )


@dataclass(frozen=True)
class SetDropped:
    """The instant at which the stream is dropped, or 0 when that is undone; goes with the epoch that it begins."""

    at_ns: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {DROPPED: self.at_ns}

    def check(self, state: TableState) -> None:
        """Refuse to drop a stream of which files stay, or to bring back one that is not dropped.

        Raises:
            StalePlanError: files came meanwhile, or the stream was begun anew, or brought back.
        """
        if self.at_ns and state.stays.num_rows:
            raise StalePlanError(
                f"stream {state.stream}: {state.stays['path'][0].as_py()} came meanwhile; {PLAN_AGAIN}"
            )
        if bool(self.at_ns) == bool(state.counters.dropped_ns):
            was = "dropped" if self.at_ns else "begun anew, or brought back,"
            raise StalePlanError(f"stream {state.stream}: it was {was} meanwhile; {PLAN_AGAIN}")


@dataclass(frozen=True)
class BeginTable:
    """Another table in the place of a dropped one: it has an id of its own, and counts in the epoch of the drop."""

    epoch: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counters that the update sets, by name."""
        return {DROPPED: 0, GENERATION: self.epoch}

    def check(self, state: TableState) -> None:
        """Refuse to begin where no table was dropped.

        Raises:
            StalePlanError: another process has begun it, or brought the dropped one back.
        """
        if not state.counters.dropped_ns or state.counters.epoch != self.epoch:
            raise StalePlanError(
                f"stream {state.stream}: it was begun anew, or brought back, meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class RaiseCounters:
    """Counters that a commit had set which was lost: each is raised to that, where the table's is lower."""

    counters: Mapping[str, int]
    """Name → value of each counter that is raised."""
    assigns_sequences: ClassVar[bool] = True

    def check(self, state: TableState) -> None:
        """Check nothing: the values were counted before, and the commit is tried on one version alone."""


def set_next_seqs(seqs: Mapping[int, int]) -> list[TableUpdate]:
    """An update for each partition → next sequence."""
    return [SetNextSeq(partition, seq) for partition, seq in seqs.items()]


def set_open_bases(bases: Mapping[int, int]) -> list[TableUpdate]:
    """An update for each partition → base of the open segment."""
    return [SetOpenBase(partition, base) for partition, base in bases.items()]


def set_batches(batches: Mapping[str, int]) -> list[TableUpdate]:
    """An update for each writer → number of its last batch."""
    return [SetBatch(writer, number) for writer, number in batches.items()]


def set_removed(*highest: Mapping[int, int]) -> list[TableUpdate]:
    """An update for each partition → highest removed sequence, given by several parts of one commit."""
    seqs: dict[int, int] = {}
    for part in highest:
        seqs |= {partition: max(seq, seqs.get(partition, seq)) for partition, seq in part.items()}
    return [SetRemoved(partition, seq) for partition, seq in sorted(seqs.items())]


def set_epoch(before: int, after: int) -> list[TableUpdate]:
    """The update from one epoch to another; none where it stays."""
    return [] if before == after else [SetEpoch(after)]


def set_row_tombstones(before: int, after: int) -> list[TableUpdate]:
    """The update from one record of row tombstones to another; none where it stays."""
    return [] if before == after else [SetRowTombstones(after)]


def _reaching(files: pa.Table, next_seq: int) -> pa.ChunkedArray:
    """Paths of the files that may hold a sequence which is not below the next one."""
    is_below = pc.fill_null(pc.less(files["max_seq"], next_seq), fill_value=False)
    return files["path"].filter(pc.invert(is_below))


def _refuse_fall(state: TableState, what: str, known: int, value: int) -> None:
    if value < known:
        raise ConflictError(
            f"stream {state.stream}: the {what} is {known} already, a commit would set it to {value}; nothing was "
            "changed; try again"
        )


def _refuse_beyond(state: TableState, value: int) -> None:
    if value > MAX_SEQ + 1:
        raise RefusedError(
            f"stream {state.stream}: the next sequence would be {value}, and sequences end at 2^62: all up to there "
            "are given out; nothing was committed; go on in a new stream"
        )
