"""Rows of a plan's files at the time of the plan, and rows of messages in files unknown to the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.seq_ranges import in_ranges
from retention.core.spans import Array
from retention.datafile.expected_stats import expected_stats_of
from retention.errors import DamagedError, StalePlanError
from retention.plan.plan import Plan
from retention.planners.probe import read_span
from retention.ports import Snapshot
from retention.schemas.messages import RULE_COLUMNS
from retention.schemas.plan import CAUSE_FILES

MessageRef = tuple[int, int]
"""The partition and the sequence of a message."""


class FileRows(Protocol):
    """A reader of the files that a plan was made from."""

    def read(self, files: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, Array]:
        """Columns of `files` (`CAUSE_FILES` rows), ascending by `seq`; for each row, its file's row number in them."""
        ...

    def counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`: columns `file`, `subject`, `messages` and `last_seq`."""
        ...


@dataclass(frozen=True)
class PlannedFileRows:
    """The files of a stored stream; implements `FileRows`."""

    opened: OpenedStream
    plan: Plan

    def read(self, files: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, Array]:
        """Read files in their state at the time of the plan.

        Raises:
            StalePlanError: one of them is deleted.
            DamagedError: one of them is damaged.
        """
        try:
            located = self._located(files.select(CAUSE_FILES.names))
            rows, of_row, _ = read_span(tuple(located), tuple(columns))
        except DamagedError as damaged:
            self._refuse_gone(files, damaged)
            raise
        return rows, of_row

    def counts(self, files: pa.Table) -> pa.Table:
        """Read stored subject digests, and recompute missing ones.

        Raises:
            StalePlanError, DamagedError: as `read`.
        """
        try:
            return self.opened.store.subject_counts(files)
        except DamagedError as damaged:
            self._refuse_gone(files, damaged)
            raise

    def _located(self, files: pa.Table) -> list[DataFile]:
        located = self.opened.store.data_files(files)
        claims = expected_stats_of(files)
        return [replace(file, claim=claim) for file, claim in zip(located, claims, strict=True)]

    def _refuse_gone(self, files: pa.Table, damaged: DamagedError) -> None:
        live = self.opened.store.snapshot().files["path"].combine_chunks()
        gone = files["path"].filter(pc.invert(pc.is_in(files["path"], value_set=live))).to_pylist()
        if gone:
            raise StalePlanError(
                f"{self.plan.header.stream}: {gone[0]}, from which this plan was made, is gone since, "
                "so it can no longer be explained; nothing was changed; plan again"
            ) from damaged


@dataclass(frozen=True)
class MessageContext:
    """A message, and its neighbouring rows."""

    message: dict[str, Any]
    """The message's narrow columns, and its `partition`."""
    number: int
    """Row number of the message's file in the cause."""
    rows: pa.Table
    """The narrow columns of the remaining rows of every file with the message in its range of sequences."""


@dataclass(frozen=True)
class PlanRows:
    """The rows of a plan's files, for questions about single messages."""

    plan: Plan
    files: FileRows

    def find(self, ref: MessageRef) -> MessageContext | None:
        """A message with its neighbouring rows; None: no file of the plan has it."""
        partition, seq = ref
        rows, numbers = self._stored(partition, seq, seq)
        at = np.flatnonzero(rows["seq"].to_numpy() == seq)
        if not len(at):
            return None
        [message] = rows.slice(int(at[0]), 1).to_pylist()
        number = int(numbers[at[0]])
        return MessageContext(
            {"partition": partition} | message, number, self._remaining(rows, numbers, seq)
        )

    def first_young(self, partition: int, seq: int, cutoff_ns: int) -> int:
        """The first message at or after `seq`, in its file, that is younger than `cutoff_ns`."""
        last, first = seq, seq
        while True:
            rows, numbers = self._stored(partition, seq, last)
            rows = self._remaining(rows, numbers, None)
            young = rows.filter(
                pc.and_(pc.greater_equal(rows["seq"], seq), pc.greater(rows["ts_ns"], cutoff_ns))
            )
            if not young.num_rows or (first := young["seq"][0].as_py()) == last:
                return first
            last = first

    def on_subject(self, numbers: Array, subject: str) -> int:
        """Count the remaining messages on a subject in some files, given by row numbers in the cause."""
        counts, differs = self._counts(numbers)
        matching = counts.filter(pc.equal(counts["subject"], subject))
        return int(pc.sum(matching["messages"], min_count=0).as_py()) + sum(
            self._count_rows(number, subject) for number in differs
        )

    def subjects_after(self, partition: int, seq: int) -> int:
        """Count the subjects of a partition with a remaining message after `seq`."""
        cause = self.plan.cause
        above = pc.greater(cause.files["max_seq"], seq)
        numbers = np.flatnonzero(pc.and_(cause.made_from.in_partition(partition), above).to_numpy())
        counts, differs = self._counts(numbers)
        subjects = [counts.filter(pc.greater(counts["last_seq"], seq))["subject"]]
        for number in differs:
            rows = self._rows_of(number)
            subjects.append(rows.filter(pc.greater(rows["seq"], seq))["subject"].cast(pa.string()))
        return len(
            pc.unique(pa.chunked_array([c for s in subjects for c in s.chunks], pa.string()))
        )

    def _counts(self, numbers: Array) -> tuple[pa.Table, list[int]]:
        """The digests of the remaining messages in some files, and the files without such a digest."""
        cause = self.plan.cause
        left = cause.files["messages"].to_numpy()
        left = left if cause.remaining is None else cause.remaining.messages
        numbers = numbers[left[numbers] > 0]
        counts = self.files.counts(cause.files.take(pa.array(numbers, pa.int64())))
        at, messages = counts["file"].to_numpy(), counts["messages"].to_numpy()
        # A digest of a different number of messages than the remaining ones is useless.
        differs = np.bincount(at, messages, minlength=len(numbers)) != left[numbers]
        return counts.filter(pa.array(~differs[at])), numbers[differs].tolist()

    def last_on_subject(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """`seq`, `ts_ns` and `headers` of the last remaining message on a message's subject.

        Files with the subject in their digests are read from the newest on, because consumers may
        have released the last message.
        """
        files, subject = self.plan.cause.files, message["subject"]
        above = pc.greater_equal(files["max_seq"], message["seq"])
        numbers = np.flatnonzero(
            pc.and_(self.plan.cause.made_from.in_partition(message["partition"]), above).to_numpy()
        )
        counts = self.files.counts(files.take(pa.array(numbers)))
        named = counts.filter(pc.equal(counts["subject"], subject))
        newest, holder = -1, 0
        for entry in named.sort_by([("last_seq", "descending")]).to_pylist():
            if entry["last_seq"] <= newest:
                break
            number = int(numbers[entry["file"]])
            last = pc.max(self._on_subject(number, subject, message["seq"])["seq"]).as_py()
            newest, holder = max((newest, holder), (-1 if last is None else last, number))
        rows, _ = self.files.read(files.slice(holder, 1), ("seq", "ts_ns", "headers"))
        [row] = rows.filter(pc.equal(rows["seq"], newest)).to_pylist()
        return row

    def _count_rows(self, number: int, subject: str) -> int:
        return int(self._on_subject(number, subject, None).num_rows)

    def _on_subject(self, number: int, subject: str, seq: int | None) -> pa.Table:
        """Remaining rows on a subject in one file; the row with sequence `seq` is always included."""
        rows = self._rows_of(number, seq)
        return rows.filter(pc.equal(rows["subject"], subject))

    def _rows_of(self, number: int, seq: int | None = None) -> pa.Table:
        """`seq` and `subject` of the remaining rows of one file; the row with sequence `seq` is always included."""
        rows, of_row = self.files.read(self.plan.cause.files.slice(number, 1), ("seq", "subject"))
        return self._remaining(rows, of_row + number, seq)

    def _stored(self, partition: int, first: int, last: int) -> tuple[pa.Table, Array]:
        """Rows of every file that overlaps `first` to `last`; for each row, its file's row number in the cause."""
        cause = self.plan.cause
        numbers = cause.made_from.covering(partition, first, last)
        if not len(numbers):
            return pa.table({name: [] for name in RULE_COLUMNS}), numbers
        rows, of_row = self.files.read(cause.files.take(pa.array(numbers)), RULE_COLUMNS)
        return rows, numbers[of_row]

    def _remaining(self, rows: pa.Table, numbers: Array, seq: int | None) -> pa.Table:
        """Rows not released by consumers; the row with sequence `seq` is always included."""
        cause, retention = self.plan.cause, self.plan.header.policy.retention
        if cause.remaining is None:
            return rows
        seqs = rows["seq"].to_numpy()
        stays = cause.remaining.messages[numbers] > 0
        for number in np.unique(numbers).tolist():
            parts = cause.made_from.parts_of(number, (retention,))
            ranges = np.stack([parts["first_seq"].to_numpy(), parts["last_seq"].to_numpy()], axis=1)
            stays &= ~((numbers == number) & in_ranges(seqs, ranges))
        return rows.filter(pa.array(stays | (seqs == seq)))


def live_message(
    opened: OpenedStream, ref: MessageRef
) -> tuple[dict[str, object] | None, Snapshot]:
    """The narrow columns of a message stored now (None if there is none), and the table.

    Raises:
        RefusedError, DamagedError: as planning.
    """
    partition, seq = ref
    snapshot = opened.store.snapshot()
    files = opened.store.inventory(snapshot).files
    covers = pc.and_(
        pc.equal(files["partition"], partition),
        pc.and_(pc.less_equal(files["min_seq"], seq), pc.greater_equal(files["max_seq"], seq)),
    )
    for file in opened.store.data_files(files.filter(covers)):
        rows, _, _ = read_span((file,))
        messages = rows.filter(pc.equal(rows["seq"], seq)).to_pylist()
        if messages:
            return {"partition": partition} | messages[0], snapshot
    return None, snapshot
