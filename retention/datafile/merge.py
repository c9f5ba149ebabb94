"""A merge of data files: writes their visible rows in sequence order to new files, and compares both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import xxhash

from retention.core.inventory import DataFile
from retention.core.wording import counted
from retention.datafile.content_digest import ContentDigest
from retention.datafile.copied_groups import (
    WrittenParts,
    digests_of_groups,
    digests_of_payloads,
    write_parts,
)
from retention.datafile.copied_payloads import PagedGroup, without_payloads
from retention.datafile.deadline_writer import write_by_deadline
from retention.datafile.merge_parts import parts_of, rows_of
from retention.datafile.parquet import describe, open_with_bytes
from retention.datafile.row_groups import merged_by_seq, rows_in_order, rows_of_group
from retention.errors import DamagedError, ForeignRowsError, VerificationError
from retention.schemas.files import FileStats
from retention.schemas.messages import FILE_COLUMNS
from retention.storage.crash_points import Step, reached
from retention.storage.row_groups.stored_group import StoredGroup

_Part = TypeVar("_Part", pa.Table, "pa.Table | PagedGroup | StoredGroup")
_WITHOUT_PAYLOADS = [name for name in FILE_COLUMNS.names if name != "payload"]


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
    """The content of files: digests of their rows, of payloads that are copied as pages, and of copied row groups."""

    decoded: ContentDigest = field(default_factory=ContentDigest)
    """The rows of all other row groups, without copied payloads."""
    payloads: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    copied_messages: int = 0

    def add(self, part: pa.Table | PagedGroup | StoredGroup) -> None:
        """Add the next part of a file."""
        if isinstance(part, StoredGroup):
            self.add_copied(part.digest, part.rows)
        elif isinstance(part, PagedGroup):
            self.decoded.update(part.rows)
            self.payloads.append(part.digest)
        else:
            self.decoded.update(part)

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
        """The number of decoded messages and their digests, and the same of row groups in bytes."""
        payloads = f" with payloads {_together(self.payloads)}" if self.payloads else ""
        copied = f" and {self.copied_messages}-{_together(self.copied)}" if self.copied else ""
        return self.decoded.value + payloads + copied


def merge_files(task: MergeTask) -> MergeResult:
    """Execute a `MergeTask`, read the targets back and compare them; a damaged source is reported, not merged.

    Raises:
        VerificationError: the targets differ from the sources.
        StorageError: the storage failed.
    """
    before = _Content()
    try:
        targets, written = (_join if len(task.targets) == 1 else _split)(task, before)
    except (DamagedError, ForeignRowsError) as error:
        return MergeResult([], str(error))
    after = _read_back(targets, written)
    if before.messages != task.messages or after.value != before.value:
        raise VerificationError(
            f"{targets[0].location}: read back as {after.value} (messages and digest) where {before.value} was written "
            f"and statistics say {counted(task.messages, 'message')}; nothing was committed; check the disk and the "
            "memory of this machine, then try again"
        )
    described = [describe(target) for target in targets]
    reached(Step.COPY_WRITTEN)
    return MergeResult([target.stats for target in described])


def _join(task: MergeTask, before: _Content) -> tuple[list[DataFile], WrittenParts | None]:
    """Write the only target, with copied row groups and payloads; returns it, and which they are."""
    [target] = task.targets
    written = write_parts(target.location, _added(parts_of(task.spans), before))
    return [replace(target, sha256=written.sha256)], written


def _split(task: MergeTask, before: _Content) -> tuple[list[DataFile], WrittenParts | None]:
    """Write the targets, split by deadline; returns those written, in which nothing is copied."""
    return write_by_deadline(task.targets, _added(rows_of(task.spans), before)), None


def _added(parts: Iterable[_Part], before: _Content) -> Iterator[_Part]:
    """Pass parts on, and add them to a content."""
    for part in parts:
        before.add(part)
        yield part


def _read_back(targets: Sequence[DataFile], written: WrittenParts | None) -> _Content:
    """The content of written files; only one that `write_parts` wrote has copied parts."""
    if written is not None and (written.copied or written.paged):
        return _read_parts_back(targets[0], written)
    after = _Content()
    for rows in merged_by_seq([rows_in_order(file, FILE_COLUMNS.names) for file in targets]):
        after.decoded.update(rows)
    return after


def _read_parts_back(target: DataFile, written: WrittenParts) -> _Content:
    after = _Content()
    opened, content = open_with_bytes(target)
    for number, digest in digests_of_groups(target, content, written.copied).items():
        after.add_copied(digest, opened.metadata.row_group(number).num_rows)
    after.payloads += digests_of_payloads(target, content, written.paged).values()
    for number in range(opened.metadata.num_row_groups):
        if number in written.paged:
            rows = rows_of_group(target, opened, number, _WITHOUT_PAYLOADS)
            after.decoded.update(without_payloads(rows))
        elif number not in written.copied:
            after.decoded.update(rows_of_group(target, opened, number, FILE_COLUMNS.names))
    return after


def _together(digests: Iterable[str]) -> str:
    return xxhash.xxh3_128_hexdigest("".join(digests).encode())
