"""A filter of messages by partition, sequence, time and subject: for files by their statistics, and for rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.subjects import matching_mask


@dataclass(frozen=True)
class MessageFilter:
    """The wanted messages; a field that is None does not restrict them."""

    partition: int | None = None
    subject: str | None = None
    """A subject filter, with `*` for one token and a last `>` for one or more."""
    from_seq: int | None = None
    to_seq: int | None = None
    """The lowest and the highest sequence, both inclusive."""
    from_ns: int | None = None
    to_ns: int | None = None
    """The instants at and before which they were stored, nanoseconds since the epoch; the second is exclusive."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that `rows` needs."""
        by_column = {
            "subject": self.subject is not None,
            "seq": self.from_seq is not None or self.to_seq is not None,
            "ts_ns": self.from_ns is not None or self.to_ns is not None,
        }
        return frozenset(name for name, is_needed in by_column.items() if is_needed)

    def files(self, files: pa.Table) -> pa.Table:
        """The files that may have wanted messages; shape `FILE_STATS`."""
        return _filtered(files, list(self._possible(files)))

    def rows(self, rows: pa.Table) -> pa.Table:
        """The wanted rows of a file from `files`.

        Args:
            rows: a table with `columns`.
        """
        return _filtered(rows, list(self._wanted(rows)))

    def _possible(self, files: pa.Table) -> Iterator[pa.Array]:
        if self.partition is not None:
            yield pc.equal(files["partition"], self.partition)
        yield from _bounded(files, ("min_seq", "max_seq"), self.from_seq, self.to_seq)
        yield from _bounded(files, ("min_ts_ns", "max_ts_ns"), self.from_ns, self._last_ns)

    def _wanted(self, rows: pa.Table) -> Iterator[pa.Array]:
        yield from _bounded(rows, ("seq", "seq"), self.from_seq, self.to_seq)
        yield from _bounded(rows, ("ts_ns", "ts_ns"), self.from_ns, self._last_ns)
        if self.subject is not None:
            yield matching_mask(rows["subject"], [self.subject])

    @property
    def _last_ns(self) -> int | None:
        return None if self.to_ns is None else self.to_ns - 1


def _bounded(
    table: pa.Table, columns: tuple[str, str], first: int | None, last: int | None
) -> Iterator[pa.Array]:
    """Masks of the rows with a range, from two columns, that meets the inclusive bounds."""
    low, high = columns
    if first is not None:
        yield pc.greater_equal(table[high], pa.scalar(first, pa.int64()))
    if last is not None:
        yield pc.less_equal(table[low], pa.scalar(last, pa.int64()))


def _filtered(table: pa.Table, masks: list[pa.Array]) -> pa.Table:
    return table.filter(reduce(pc.and_, masks)) if masks else table
