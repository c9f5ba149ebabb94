"""A merge of data files: writes their visible rows in sequence order to new files, and compares both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import xxhash

from retention.core.inventory import DataFile
from retention.core.seq_ranges import ranges_in
from retention.core.wording import counted
from retention.datafile.content_digest import ContentDigest
from retention.datafile.copied_groups import copied_groups, digests_of_groups, write_parts
from retention.datafile.deadline_writer import TableBuffer, write_by_deadline
from retention.datafile.parquet import describe, open_all_messages
from retention.datafile.rewrite import COLUMNS, with_time
from retention.datafile.row_groups import (
    has_ordered_groups,
    merged_by_seq,
    opened_rows_in_order,
    rows_in_order,
    rows_of_group,
)
from retention.errors import DamagedError, ForeignRowsError, VerificationError
from retention.schemas.files import FileStats
from retention.schemas.messages import FILE_COLUMNS
from retention.storage.crash_points import Step, reached
from retention.storage.row_groups.stored_group import StoredGroup


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


@dataclass
class _Content:
    """The content of files: digests of their rows, and of the row groups that are copied as bytes."""

    decoded: ContentDigest = field(default_factory=ContentDigest)
    copied: list[str] = field(default_factory=list)
    copied_messages: int = 0

    def add_copied(self, digest: str, messages: int) -> None:
        """Add the next row group in bytes."""
        self.copied.append(digest)
        self.copied_messages += messages

    @property
    def messages(self) -> int:
        """The number of all messages."""
        return self.decoded.messages + self.copied_messages

    @property
    def value(self) -> str:
        """The number of decoded messages and their digest, and the same of row groups in bytes."""
        groups = xxhash.xxh3_128_hexdigest("".join(self.copied).encode())
        copied = f" and {self.copied_messages}-{groups}" if self.copied else ""
        return self.decoded.value + copied


def merge_files(task: MergeTask) -> MergeResult:
    """Execute a `MergeTask`, read the targets back and compare them; a damaged source is reported, not merged.

    Raises:
        VerificationError: the targets differ from the sources.
        StorageError: the storage failed.
    """
    before = _Content()
    try:
        targets, copied = (_join if len(task.targets) == 1 else _split)(task, before)
    except (DamagedError, ForeignRowsError) as error:
        return MergeResult([], str(error))
    after = _read_back(targets, copied)
    if before.messages != task.messages or after.value != before.value:
        raise VerificationError(
            f"{targets[0].location}: read back as {after.value} (messages and digest) where {before.value} was written "
            f"and statistics say {counted(task.messages, 'message')}; nothing was committed; check the disk and the "
            "memory of this machine, then try again"
        )
    written = [describe(target) for target in targets]
    reached(Step.COPY_WRITTEN)
    return MergeResult([target.stats for target in written])


def _join(task: MergeTask, before: _Content) -> tuple[list[DataFile], Mapping[int, str]]:
    """Write the only target, with large row groups of the sources as bytes; returns it, and those row groups."""
    [target] = task.targets
    written = write_parts(target.location, _large_parts(_parts(task.spans), before))
    return [replace(target, sha256=written.sha256)], written.copied


def _split(task: MergeTask, before: _Content) -> tuple[list[DataFile], Mapping[int, str]]:
    """Write the targets, split by deadline; returns those written, and no row group in bytes."""
    rows = (part for part in _large_parts(_rows(task.spans), before) if isinstance(part, pa.Table))
    return write_by_deadline(task.targets, rows), {}


def _large_parts(
    parts: Iterable[pa.Table | StoredGroup], before: _Content
) -> Iterator[pa.Table | StoredGroup]:
    """The same rows in large tables of shape `FILE_COLUMNS`, and row groups in bytes; adds both to a content."""
    held = TableBuffer()
    for part in parts:
        if isinstance(part, StoredGroup):
            yield from _emptied(held, before)
            before.add_copied(part.digest, part.rows)
            yield part
        elif held.takes(part):
            yield from _emptied(held, before)
    yield from _emptied(held, before)


def _emptied(held: TableBuffer, before: _Content) -> Iterator[pa.Table]:
    if held.rows:
        rows = with_time(held.emptied().combine_chunks())
        before.decoded.update(rows)
        yield rows


def _parts(spans: Iterable[Sequence[DataFile]]) -> Iterator[pa.Table | StoredGroup]:
    """The visible rows of spans of files, ascending, as row groups in bytes or as tables without `time`."""
    for span in spans:
        if len(span) == 1:
            yield from _parts_of(span[0])
        else:
            yield from _rows([span])


def _parts_of(file: DataFile) -> Iterator[pa.Table | StoredGroup]:
    opened = open_all_messages(file)
    copied = copied_groups(file, opened, ranges_in(file.hidden))
    if not copied.numbers or not has_ordered_groups(opened):
        yield from opened_rows_in_order(file, opened, COLUMNS)
        return
    for number in range(opened.metadata.num_row_groups):
        stored = copied.load(number)
        yield rows_of_group(file, opened, number, COLUMNS) if stored is None else stored


def _rows(spans: Iterable[Sequence[DataFile]]) -> Iterator[pa.Table]:
    """The visible rows of spans of files, ascending, without `time`; copies derive it from `ts_ns`."""
    for span in spans:
        yield from merged_by_seq([rows_in_order(file, COLUMNS) for file in span])


def _read_back(targets: Sequence[DataFile], copied: Mapping[int, str]) -> _Content:
    """The content of written files, of which the only one may have row groups in bytes."""
    after = _Content()
    if not copied:
        sources = [rows_in_order(file, FILE_COLUMNS.names) for file in targets]
        for rows in merged_by_seq(sources):
            after.decoded.update(rows)
        return after
    [target] = targets
    opened = open_all_messages(target)
    for number, digest in digests_of_groups(target, copied).items():
        after.add_copied(digest, opened.metadata.row_group(number).num_rows)
    for number in range(opened.metadata.num_row_groups):
        if number not in copied:
            after.decoded.update(rows_of_group(target, opened, number, FILE_COLUMNS.names))
    return after
