"""The rewrite of a data file without some of its rows: its task, and the row groups to skip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.inventory import DataFile, SeqRanges
from retention.core.plain_strings import without_views
from retention.core.read_count import ReadCount
from retention.core.seq_ranges import in_ranges, ranges_in, union_of_ranges
from retention.datafile.copied_groups import CopiedGroups, copied_groups, write_parts
from retention.datafile.cut_payloads import CutGroup
from retention.datafile.deadline_writer import TableBuffer, write_by_deadline
from retention.datafile.footers import compressed_bytes, seq_bounds
from retention.datafile.parquet import ROW_GROUP_ROWS, describe, open_messages, unreadable_error
from retention.datafile.row_groups import COLUMNS, with_time
from retention.schemas.files import FileStats
from retention.storage.crash_points import Step, reached
from retention.storage.row_groups.stored_group import StoredGroup

DECODED_BYTES = 8 << 20
"""The approximate bytes to decode at a time; reused memory is far cheaper than new memory for each piece."""


@dataclass(frozen=True)
class RewriteTask:
    """A task to write the rows of `source` with sequences outside all `removed` ranges."""

    source: DataFile
    targets: tuple[DataFile, ...]
    """The files to write; rows are split among several by deadline, if that pays off."""
    removed: np.ndarray | SeqRanges
    """Shape (n, 2), int64: first and last sequence, both inclusive, ascending and disjoint; or their location."""

    def attempt(self) -> RewriteTask:
        """The task with targets that no other attempt writes."""
        return replace(self, targets=tuple(target.of_attempt() for target in self.targets))

    def with_ranges(self) -> RewriteTask:
        """The task with its ranges loaded; the original task does not retain them."""
        return replace(self, removed=ranges_in(self.removed))

    @cached_property
    def gone(self) -> np.ndarray:
        """The ranges of omitted sequences: removed ones, and the source's hidden ones; shape (n, 2)."""
        return union_of_ranges(ranges_in(self.removed), ranges_in(self.source.hidden))


@dataclass(frozen=True)
class RewriteResult:
    """The result of a `RewriteTask`."""

    stats: list[FileStats]
    """Rows of `FILE_STATS`, one for each written target, as read back."""
    read: ReadCount

    @property
    def messages(self) -> int:
        """The number of messages in all targets."""
        return sum(row["messages"] for row in self.stats)

    @property
    def bytes(self) -> int:
        """The bytes of the messages in all targets, by the broker's accounting."""
        return sum(row["bytes"] for row in self.stats)


def copy_remaining(task: RewriteTask) -> RewriteResult:
    """Execute a `RewriteTask`, then read the targets back and describe them.

    Raises:
        DamagedError: the source cannot be read to its end.
    """
    task = task.with_ranges()
    source = open_messages(task.source)
    targets = _write_remaining(task, source)
    written = [describe(target) for target in targets]
    reached(Step.COPY_WRITTEN)
    cost = compressed_bytes(source, COLUMNS, _remaining_groups(source, task.gone))
    return RewriteResult(
        [target.stats for target in written],
        sum((target.read for target in written), ReadCount(1, cost)),
    )


def remaining_rows(task: RewriteTask, source: pq.ParquetFile) -> Iterator[pa.Table]:
    """The remaining rows, in tables of a row group or `BUFFER_BYTES`."""
    return _rows_of(task, source, _remaining_groups(source, task.gone))


def _write_remaining(task: RewriteTask, source: pq.ParquetFile) -> list[DataFile]:
    """Write the targets; to a single one, row groups are copied as bytes, or their payloads are cut out of pages."""
    copied = copied_groups(task.source, source, task.gone)
    if len(task.targets) > 1 or not copied.numbers | copied.losing:
        return write_by_deadline(task.targets, remaining_rows(task, source))
    [target] = task.targets
    written = write_parts(target.location, _remaining_parts(task, source, copied))
    return [replace(target, sha256=written.sha256)]


def _remaining_parts(
    task: RewriteTask, source: pq.ParquetFile, copied: CopiedGroups
) -> Iterator[pa.Table | CutGroup | StoredGroup]:
    """The remaining rows in order: row groups in bytes, row groups with cut payloads, and tables."""
    decoded: list[int] = []
    for number in _remaining_groups(source, task.gone):
        part: CutGroup | StoredGroup | None = copied.load(number)
        if part is None:
            part = copied.cut(number, task.gone)
        if part is None:
            decoded.append(number)
            continue
        yield from _rows_of(task, source, decoded)
        decoded = []
        yield part
    yield from _rows_of(task, source, decoded)


def _rows_of(task: RewriteTask, source: pq.ParquetFile, groups: list[int]) -> Iterator[pa.Table]:
    """The remaining rows of row groups, in tables of a row group or `BUFFER_BYTES`."""
    held, gone = TableBuffer(), task.gone
    try:
        for batch in _batches(source, groups):
            if held.takes(_without(batch, gone)):
                yield held.emptied()
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(task.source, error) from error
    if held.rows:
        yield held.emptied()


def _batches(source: pq.ParquetFile, groups: list[int]) -> Iterator[pa.RecordBatch]:
    """The rows of row groups: one group is read at a time, and about `DECODED_BYTES` of it are decoded at a time."""
    for group in groups:
        metadata = source.metadata.row_group(group)
        fitting = DECODED_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
        rows = min(max(fitting, 1), ROW_GROUP_ROWS)
        yield from source.iter_batches(rows, row_groups=[group], columns=COLUMNS)


def _without(batch: pa.RecordBatch, gone: np.ndarray) -> pa.Table:
    rows = without_views(pa.Table.from_batches([batch]))
    goes = in_ranges(batch.column("seq").to_numpy(), gone)
    return with_time(rows.filter(pa.array(~goes)) if goes.any() else rows)


def _remaining_groups(source: pq.ParquetFile, removed: np.ndarray) -> list[int]:
    """The row groups with possibly remaining rows: no removed range covers them from end to end.

    row groups   [1 … 4] [5 … 8] [9 … 12]
    removed        2 ──────────── 9           the first and the last are read
    """
    return [
        number
        for number in range(source.metadata.num_row_groups)
        if not _covers(removed, seq_bounds(source, number))
    ]


def _covers(ranges: np.ndarray, bounds: tuple[int, int] | None) -> bool:
    if bounds is None or not len(ranges):
        return False
    at = int(np.searchsorted(ranges[:, 0], bounds[0], side="right")) - 1
    return at >= 0 and bool(bounds[1] <= ranges[at, 1])
