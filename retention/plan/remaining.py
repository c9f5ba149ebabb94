"""Remaining messages of a stream after the release by consumers: the input of the limits of a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NewType, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import Inventory
from retention.core.read_count import ReadCount
from retention.core.seq_ranges import in_ranges, ranges_in
from retention.core.spans import Array, Spans
from retention.plan.removed_ranges import FileRanges, RemovedRanges
from retention.storage import scratch_files

InventoryRow = NewType("InventoryRow", int)
"""The row number of a file in an inventory."""
RemainingRow = NewType("RemainingRow", int)
"""The row number of a file among those with remaining messages; often not its row number in the inventory."""


class SubjectDigests(Protocol):
    """A reader of subject digests."""

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`, as by `Store.subject_counts`."""
        ...


@dataclass(frozen=True)
class KeptFromRelease:
    """Messages that consumers have released and vetoes keep: limits do not see them, and no plan removes them."""

    messages: Array
    """Of each file of the inventory, int64."""
    bytes: Array
    ranges: RemovedRanges
    """Their ranges in files of which they are a part; `file` is a row number of the inventory."""
    by_reason: Array
    """Their number for each reason of the vetoes, int64; of files that are kept completely, only for legal holds."""


@dataclass(frozen=True)
class RemainingMessages:
    """A stream, and its remaining messages, to which limits apply."""

    inventory: Inventory
    """The stream as it is stored."""
    files: pa.Table
    """Files with remaining messages, with statistics of these only; shape `FILE_STATS`, sorted as an inventory's."""
    numbers: Array
    """The row number in the inventory of each of `files`."""
    released: RemovedRanges = field(default_factory=RemovedRanges)
    """Ranges of sequences released by consumers in these files; `file` is a row number of the inventory.

    A file with kept messages has ranges as well, without those of the kept ones.
    """
    kept: KeptFromRelease | None = None
    """The messages kept from the release; None: there are none."""
    digests: Mapping[RemainingRow, pa.Table | StoredDigest] = field(default_factory=dict)
    """Row number in `files` → the subject digest of the remaining messages, if it differs from the stored one."""
    read: ReadCount = field(default_factory=ReadCount)
    """The cost of the release: files and bytes read."""

    @property
    def stored(self) -> pa.Table:
        """The files with their stored statistics, shape `FILE_STATS`, row for row with `files`."""
        return self.stored_part(RemainingRow(0), RemainingRow(len(self.numbers)))

    def rows_of(self, spans: Spans, span: int) -> tuple[RemainingRow, RemainingRow]:
        """The rows of `files` in one span: the first, and the one after the last."""
        first, end = spans.first_file[span : span + 2].tolist()
        return RemainingRow(first), RemainingRow(end)

    def stored_part(self, first: RemainingRow, end: RemainingRow) -> pa.Table:
        """Stored statistics of some `files`, from row `first` up to row `end` (exclusive); shape `FILE_STATS`."""
        if self.files is self.inventory.files:
            return self.files.slice(first, end - first)
        return self.inventory.files.take(pa.array(self.numbers[first:end]))

    def hidden(self, first: RemainingRow, end: RemainingRow) -> list[Array | FileRanges]:
        """The removed ranges of sequences in a slice of `files`, per file."""
        hidden = self._hidden
        return hidden.of_files(np.sort(self.numbers[first:end])) if hidden else []

    @cached_property
    def _hidden(self) -> RemovedRanges:
        return self.released if self.kept is None else self.released.joined(self.kept.ranges)

    def subject_counts(
        self,
        digests: SubjectDigests,
        first: RemainingRow = RemainingRow(0),
        end: RemainingRow | None = None,
    ) -> pa.Table:
        """The subject digests of the remaining messages, as by `Store.subject_counts`.

        Args:
            digests: the source of stored digests.
            first: the first row of `files` to include; it gets number 0.
            end: the row after the last one to include; None: all later rows.
        """
        end = RemainingRow(len(self.numbers)) if end is None else end
        counts = digests.subject_counts(self.stored_part(first, end))
        partial = {
            number - first: digest
            for number, digest in self.digests.items()
            if first <= number < end
        }
        if not partial:
            return counts
        changed = pc.is_in(counts["file"], value_set=pa.array(list(partial), pa.int64()))
        parts = [counts.filter(pc.invert(changed))]
        for number, kept in partial.items():
            digest = digest_in(kept)
            numbers = pa.array(np.full(len(digest), number), pa.int64())
            parts.append(digest.add_column(0, counts.schema.field("file"), numbers))
        table = pa.concat_tables(parts)
        order = np.argsort(table["file"].to_numpy(), kind="stable")
        return table.take(pa.array(order)).combine_chunks()


@dataclass(frozen=True)
class StoredDigest:
    """The subject digest of one file, stored with others in a file of a task."""

    place: str
    at: int
    """Its number among those in the file."""
    owner: object = field(default=None, compare=False)
    """The scratch directory; deleted when the last reference to it ends."""

    def __getstate__(self) -> dict[str, object]:
        """The fields without the owner, which belongs to one process."""
        return vars(self) | {"owner": None}


def digest_in(digest: pa.Table | StoredDigest) -> pa.Table:
    """A subject digest, shape `SUBJECT_COUNTS`, read if it is stored."""
    if not isinstance(digest, StoredDigest):
        return digest
    return scratch_files.read_table_at(digest.place, digest.at)


def all_remaining(inventory: Inventory) -> RemainingMessages:
    """A stream without a release by consumers."""
    return RemainingMessages(inventory, inventory.files, np.arange(inventory.files.num_rows))


def visible_rows(
    rows: pa.Table, file_of_row: Array, hidden: Sequence[Array | FileRanges]
) -> tuple[pa.Table, Array]:
    """Rows outside of hidden ranges of sequences, and the file of each.

    Args:
        rows: `seq` among their columns.
        file_of_row: one entry per row.
        hidden: ranges of sequences, as by `RemainingMessages.hidden`.
    """
    if not len(hidden):
        return rows, file_of_row
    together = np.concatenate([ranges_in(ranges) for ranges in hidden])
    if not len(together):
        return rows, file_of_row
    ascending = together[np.argsort(together[:, 0], kind="stable")]
    stays = ~in_ranges(rows["seq"].to_numpy(), ascending)
    return rows.filter(pa.array(stays)), file_of_row[stays]
