"""Updates of a commit: the counters that it sets in addition to its files, their checks, and their names in logs.

An update is any frozen type with `check`, `counters` and `assigns_sequences`; stores know none by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counter_names import BATCH, NEXT_SEQ, OPEN_BASE, REMOVED, name_of
from retention.core.counters import (
    ARCHIVE_HEAD,
    CLAIMS,
    CONSUMERS,
    DROPPED,
    EPOCH,
    GENERATION,
    HISTORY_HEAD,
    HOLDS,
    REPLAY,
    STAGING_CLAIMS,
)
from retention.core.table_requirements import PLAN_AGAIN, TableState
from retention.errors import ConflictError, RefusedError, StalePlanError
from retention.schemas.bounds import MAX_SEQ


class TableUpdate(Protocol):
    """A change of a table's counters, part of a commit."""

    @property
    def assigns_sequences(self) -> bool:
        """Whether a rival's commit in between invalidates the update, so that it is attempted only once."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """Name → value of each counter that the update sets (`counter_names`)."""
        ...

    def check(self, state: TableState) -> None:
        """Check the update against the table to change.

        Raises:
            ConflictError: a counter would fall.
            StalePlanError: the remaining files contradict the update.
            RefusedError: a counter would exceed the valid sequences.
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
        """Refuse to assign sequences again, or sequences beyond the last one.

        Raises:
            ConflictError: the table's is higher.
            RefusedError: it is beyond the last one.
        """
        known = state.in_epoch.next_seq.get(self.partition, 0)
        _refuse_fall(state, f"next sequence of partition {self.partition}", known, self.seq)
        _refuse_beyond(state, self.seq)


@dataclass(frozen=True)
class SetOpenBase:
    """The base of a partition's open segment."""

    partition: int
    base: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {name_of(OPEN_BASE, self.partition): self.base}

    def check(self, state: TableState) -> None:
        """Refuse to reopen a segment.

        Raises:
            ConflictError: the table's is higher.
            RefusedError: it is beyond the last sequence.
        """
        known = state.in_epoch.open_base.get(self.partition, 0)
        _refuse_fall(state, f"open base of partition {self.partition}", known, self.base)
        _refuse_beyond(state, self.base)


@dataclass(frozen=True)
class SetBatch:
    """The number of the last batch of a writer, for exactly-once appends."""

    writer: str
    number: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {name_of(BATCH, self.writer): self.number}

    def check(self, state: TableState) -> None:
        """Refuse a batch that was committed already.

        Raises:
            ConflictError: the table has it, or a later one.
        """
        last = state.in_epoch.batches.get(self.writer)
        if last is not None and self.number <= last:
            raise ConflictError(
                f"stream {state.stream}: batch {last} of writer {self.writer} was committed already, so batch "
                f"{self.number} was not written again"
            )


@dataclass(frozen=True)
class SetRemoved:
    """The highest sequence of a partition that the commit removes; the table keeps the higher of this and its own."""

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

    A commit that depends on the number also has `AssertConsumerEdits`.
    """

    count: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {CONSUMERS: self.count}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement has the previous number."""


@dataclass(frozen=True)
class SetHoldEdits:
    """The number of records of legal holds; accompanied by `AssertHoldEdits` with the previous number."""

    count: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {HOLDS: self.count}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement has the previous number."""


@dataclass(frozen=True)
class SetClaims:
    """The numbers of claims on dead files and on staging files; each is accompanied by `AssertClaims`."""

    count: int
    staging: int
    """The number of claims on files staged and never committed."""
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counters that the update sets, by name."""
        return {CLAIMS: self.count, STAGING_CLAIMS: self.staging}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement has the previous numbers."""


@dataclass(frozen=True)
class SetArchiveHead:
    """The number of the manifest of the removed files; accompanied by `AssertArchiveHead`."""

    number: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {ARCHIVE_HEAD: self.number}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement has the previous manifest."""


@dataclass(frozen=True)
class SetHistoryHead:
    """The link of the committing run, as a number; accompanied by `AssertHistoryHead`."""

    number: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {HISTORY_HEAD: self.number}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement has the previous link."""


@dataclass(frozen=True)
class SetReplay:
    """The number of the record from which the next pass goes on with its replay; accompanied by `AssertReplay`."""

    number: int
    """0: the next pass begins anew."""
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {REPLAY: self.number}

    def check(self, state: TableState) -> None:
        """Check nothing: the requirement has the previous record."""


@dataclass(frozen=True)
class SetEpoch:
    """A change of epoch: a new one begins, or an ended one resumes; only its own counters count."""

    number: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {EPOCH: self.number}

    def check(self, state: TableState) -> None:
        """Refuse if a remaining file has sequences that the epoch would assign again.

        Raises:
            StalePlanError: naming one.
        """
        for partition in state.stays["partition"].unique().to_pylist():
            there = state.stays.filter(pc.equal(state.stays["partition"], partition))
            next_seq = state.sets.get(name_of(NEXT_SEQ, partition), 0)
            beyond = _reaching(there, next_seq)
            if len(beyond):
                raise StalePlanError(
                    f"stream {state.stream}: {beyond[0].as_py()} was added meanwhile, and offsets cannot begin again "
                    f"beside it; {PLAN_AGAIN}"
                )


@dataclass(frozen=True)
class SetDropped:
    """The instant at which the stream is dropped, or 0 when that is undone; accompanied by the epoch that it begins."""

    at_ns: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counter that the update sets, by name."""
        return {DROPPED: self.at_ns}

    def check(self, state: TableState) -> None:
        """Refuse to drop a stream with remaining files, or to restore one that is not dropped.

        Raises:
            StalePlanError: files were added meanwhile, or the stream was recreated or restored.
        """
        if self.at_ns and state.stays.num_rows:
            raise StalePlanError(
                f"stream {state.stream}: {state.stays['path'][0].as_py()} was added meanwhile; {PLAN_AGAIN}"
            )
        if bool(self.at_ns) == bool(state.counters.dropped_ns):
            was = "dropped" if self.at_ns else "recreated, or restored,"
            raise StalePlanError(f"stream {state.stream}: it was {was} meanwhile; {PLAN_AGAIN}")


@dataclass(frozen=True)
class BeginTable:
    """A new table in the place of a dropped one: it has its own id, and counts in the epoch of the drop."""

    epoch: int
    assigns_sequences: ClassVar[bool] = True

    @property
    def counters(self) -> Mapping[str, int]:
        """The counters that the update sets, by name."""
        return {DROPPED: 0, GENERATION: self.epoch}

    def check(self, state: TableState) -> None:
        """Refuse to start a table where none was dropped.

        Raises:
            StalePlanError: another process has started it, or restored the dropped one.
        """
        if not state.counters.dropped_ns or state.counters.epoch != self.epoch:
            raise StalePlanError(
                f"stream {state.stream}: it was recreated, or restored, meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class RaiseCounters:
    """Counters of a lost commit: the table's lower values are raised to them."""

    counters: Mapping[str, int]
    """Name → value of each counter to raise."""
    assigns_sequences: ClassVar[bool] = True

    def check(self, state: TableState) -> None:
        """Check nothing: the values were counted before, and the commit is attempted on one version only."""


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
    """An update for each partition → highest removed sequence, from several parts of one commit."""
    seqs: dict[int, int] = {}
    for part in highest:
        seqs |= {partition: max(seq, seqs.get(partition, seq)) for partition, seq in part.items()}
    return [SetRemoved(partition, seq) for partition, seq in sorted(seqs.items())]


def set_epoch(before: int, after: int) -> list[TableUpdate]:
    """The update from one epoch to another; empty if they are equal."""
    return [] if before == after else [SetEpoch(after)]


def _reaching(files: pa.Table, next_seq: int) -> pa.ChunkedArray:
    """Paths of the files that may have a sequence at or above the next one."""
    is_below = pc.fill_null(pc.less(files["max_seq"], next_seq), fill_value=False)
    return files["path"].filter(pc.invert(is_below))


def _refuse_fall(state: TableState, what: str, known: int, value: int) -> None:
    if value < known:
        raise ConflictError(
            f"stream {state.stream}: the {what} is {known} already, and a commit would set it to {value}; nothing was "
            "changed; try again"
        )


def _refuse_beyond(state: TableState, value: int) -> None:
    if value > MAX_SEQ + 1:
        raise RefusedError(
            f"stream {state.stream}: the next sequence would be {value}, and sequences end at 2^62: all up to there "
            "are assigned; nothing was committed; continue in a new stream"
        )
