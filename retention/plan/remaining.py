"""Remaining messages of a stream, once consumers have let go of what nobody needs: the rest of a pass looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NewType, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import Inventory, ReadCount
from retention.core.seq_ranges import in_ranges, ranges_in
from retention.core.spans import Array, Spans
from retention.plan.removed_ranges import FileRanges, RemovedRanges
from retention.storage import scratch_files

InventoryRow = NewType("InventoryRow", int)
"""The row number of a file in an inventory."""
RemainingRow = NewType("RemainingRow", int)
"""The row number of a file among those of which something is left: often another than its number in the inventory."""


class SubjectDigests(Protocol):
    """A reader of subject digests."""

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`, as `Store.subject_counts` has them."""
        ...


@dataclass(frozen=True)
class RemainingMessages:
    """A stream, and the part of it that limits judge."""

    inventory: Inventory
    """The stream as it is stored."""
    files: pa.Table
    """Files of which something is left, counting only that; shape `FILE_STATS`, sorted as an inventory's."""
    numbers: Array
    """The row number in the inventory of each of `files`."""
    released: RemovedRanges = field(default_factory=RemovedRanges)
    """Ranges of sequences that consumers let go of in these files; `file` being a row number of the inventory."""
    digests: Mapping[RemainingRow, pa.Table | StoredDigest] = field(default_factory=dict)
    """Row number in `files` → the subject digest of what is left, where that is less than what is stored."""
    read: ReadCount = field(default_factory=ReadCount)
    """The cost of learning that: files and bytes that were read."""

    @property
    def stored(self) -> pa.Table:
        """The files as they are stored, shape `FILE_STATS`, row for row with `files`."""
        return self.stored_part(RemainingRow(0), RemainingRow(len(self.numbers)))

    def rows_of(self, spans: Spans, span: int) -> tuple[RemainingRow, RemainingRow]:
        """The rows of `files` that one of their spans is made of: the first, and the one behind the last."""
        first, end = spans.first_file[span : span + 2].tolist()
        return RemainingRow(first), RemainingRow(end)

    def stored_part(self, first: RemainingRow, end: RemainingRow) -> pa.Table:
        """Some of `files` as they are stored, from row `first` to the one before `end`; shape `FILE_STATS`."""
        if self.files is self.inventory.files:
            return self.files.slice(first, end - first)
        return self.inventory.files.take(pa.array(self.numbers[first:end]))

    def hidden(self, first: RemainingRow, end: RemainingRow) -> list[Array | FileRanges]:
        """The ranges of sequences that are gone from some of `files`, of each by itself."""
        return self.released.of_files(np.sort(self.numbers[first:end])) if self.released else []

    def subject_counts(
        self,
        digests: SubjectDigests,
        first: RemainingRow = RemainingRow(0),
        end: RemainingRow | None = None,
    ) -> pa.Table:
        """The subject digests of what is left, as `Store.subject_counts` has them.

        Args:
            digests: where they are kept.
            first: only those of this one of `files` and of later ones; it has number 0 then.
            end: only those of files before this one; None: of all later ones.
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
    """The subject digest of one file, among those of others in a file that a task wrote."""

    place: str
    number: InventoryRow
    """The file's row number in the inventory."""
    owner: object = field(default=None, compare=False)
    """The directory that is deleted when nobody refers to it any more."""

    def __getstate__(self) -> dict[str, Any]:
        """The fields but the owner, which is the affair of one process."""
        return vars(self) | {"owner": None}


def digest_in(digest: pa.Table | StoredDigest) -> pa.Table:
    """A subject digest, shape `SUBJECT_COUNTS`, wherever it is."""
    if not isinstance(digest, StoredDigest):
        return digest
    table = scratch_files.read_table(digest.place)
    return table.filter(pc.equal(table["file"], digest.number)).drop_columns(["file"])


def all_remaining(inventory: Inventory) -> RemainingMessages:
    """A stream of which consumers let nothing go."""
    return RemainingMessages(inventory, inventory.files, np.arange(inventory.files.num_rows))


def visible_rows(
    rows: pa.Table, file_of_row: Array, hidden: Sequence[Array | FileRanges]
) -> tuple[pa.Table, Array]:
    """Rows without those whose sequences lie in hidden ranges, and the files of the others.

    Args:
        rows: `seq` among their columns.
        file_of_row: one entry a row.
        hidden: ranges of sequences, as `RemainingMessages.hidden` has them.
    """
    if not len(hidden):
        return rows, file_of_row
    together = np.concatenate([ranges_in(ranges) for ranges in hidden])
    if not len(together):
        return rows, file_of_row
    ascending = together[np.argsort(together[:, 0], kind="stable")]
    stays = ~in_ranges(rows["seq"].to_numpy(), ascending)
    return rows.filter(pa.array(stays)), file_of_row[stays]
