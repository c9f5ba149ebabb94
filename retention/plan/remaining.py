"""Remaining messages of a stream, once consumers have let go of what nobody needs: the rest of a pass looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import Inventory, ReadCount
from retention.core.seq_ranges import in_ranges
from retention.core.spans import Array, Spans
from schemas.plan import REMOVED_RANGES

_NOTHING = np.zeros((0, 2), dtype=np.int64)


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
    released: pa.Table = field(default_factory=REMOVED_RANGES.empty_table)
    """Ranges of sequences that consumers let go of in these files; shape `REMOVED_RANGES`, ascending by `file`, a row
    number of the inventory."""
    digests: Mapping[RemainingRow, pa.Table] = field(default_factory=dict)
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

    def hidden(self, first: RemainingRow, end: RemainingRow) -> Array:
        """The ranges of sequences that are gone from some of `files`, ascending; shape (n, 2), both inclusive."""
        if not self.released.num_rows:
            return _NOTHING
        numbers = self.numbers[first:end]
        start, stop = np.searchsorted(
            self.released["file"].to_numpy(), [numbers.min(), numbers.max() + 1]
        )
        ranges = self.released.slice(start, stop - start).sort_by("first_seq")
        return np.stack([ranges["first_seq"].to_numpy(), ranges["last_seq"].to_numpy()], axis=1)

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
        for number, digest in partial.items():
            numbers = pa.array(np.full(len(digest), number), pa.int64())
            parts.append(digest.add_column(0, counts.schema.field("file"), numbers))
        table = pa.concat_tables(parts)
        order = np.argsort(table["file"].to_numpy(), kind="stable")
        return table.take(pa.array(order)).combine_chunks()


def all_remaining(inventory: Inventory) -> RemainingMessages:
    """A stream of which consumers let nothing go."""
    return RemainingMessages(inventory, inventory.files, np.arange(inventory.files.num_rows))


def visible_rows(rows: pa.Table, file_of_row: Array, hidden: Array) -> tuple[pa.Table, Array]:
    """Rows without those whose sequences lie in hidden ranges, and the files of the others.

    Args:
        rows: `seq` among their columns.
        file_of_row: one entry a row.
        hidden: ranges of sequences, as `RemainingMessages.hidden` has them.
    """
    if not len(hidden):
        return rows, file_of_row
    stays = ~in_ranges(rows["seq"].to_numpy(), hidden)
    return rows.filter(pa.array(stays)), file_of_row[stays]
