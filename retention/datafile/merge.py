"""A merge of data files: writes their visible rows in sequence order to new files, and compares both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from retention.core.inventory import DataFile
from retention.core.wording import counted
from retention.datafile.content_digest import ContentDigest
from retention.datafile.deadline_writer import TableBuffer, in_large_parts, write_by_deadline
from retention.datafile.parquet import describe
from retention.datafile.rewrite import COLUMNS, with_time
from retention.datafile.row_groups import merged_by_seq, rows_in_order
from retention.errors import DamagedError, ForeignRowsError, VerificationError
from retention.schemas.files import FileStats
from retention.schemas.messages import FILE_COLUMNS
from retention.storage.crash_points import Step, reached


@dataclass(frozen=True)
class MergeTask:
    """A task to write the visible rows of files into new ones."""

    spans: tuple[tuple[DataFile, ...], ...]
    """The files, ascending; only sequences of files in one span may interleave."""
    targets: tuple[DataFile, ...]
    """The files to write; rows are split among several by deadline, if that pays off."""
    messages: int
    """The number of visible rows of all files, by their statistics."""

    def attempt(self) -> MergeTask:
        """The task with targets that no other attempt writes."""
        return replace(self, targets=tuple(target.of_attempt() for target in self.targets))


@dataclass(frozen=True)
class MergeResult:
    """The result of a `MergeTask`."""

    stats: list[FileStats]
    """Rows of `FILE_STATS`, one for each written target, as read back; empty if nothing was merged."""
    damage: str | None = None
    """The reason why nothing was merged; None on success."""


def merge_files(task: MergeTask) -> MergeResult:
    """Execute a `MergeTask`, read the targets back and compare them; a damaged source is reported, not merged.

    Raises:
        VerificationError: the targets differ from the sources.
        StorageError: the storage failed.
    """
    before = ContentDigest()
    try:
        rows = _digested(_sources(task.spans), before)
        targets = write_by_deadline(task.targets, map(with_time, in_large_parts(rows)))
    except (DamagedError, ForeignRowsError) as error:
        return MergeResult([], str(error))
    after = ContentDigest()
    for rows in merged_by_seq([rows_in_order(file, FILE_COLUMNS.names) for file in targets]):
        after.update(rows)
    if before.messages != task.messages or after.value != before.value:
        raise VerificationError(
            f"{targets[0].location}: read back as {after.value} (messages and digest) where {before.value} was written "
            f"and statistics say {counted(task.messages, 'message')}; nothing was committed; check the disk and the "
            "memory of this machine, then try again"
        )
    written = [describe(target) for target in targets]
    reached(Step.COPY_WRITTEN)
    return MergeResult([target.stats for target in written])


def _digested(tables: Iterable[pa.Table], digest: ContentDigest) -> Iterator[pa.Table]:
    """Pass decoded tables through, and add them to a digest in larger parts."""
    held = TableBuffer()
    for rows in tables:
        if held.takes(rows):
            digest.update(with_time(held.emptied().combine_chunks()))
        yield rows
    if held.rows:
        digest.update(with_time(held.emptied().combine_chunks()))


def _sources(spans: Iterable[Sequence[DataFile]]) -> Iterator[pa.Table]:
    """The visible rows of spans of files, ascending, without `time`; copies derive it from `ts_ns`."""
    for span in spans:
        yield from merged_by_seq([rows_in_order(file, COLUMNS) for file in span])
