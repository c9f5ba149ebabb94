"""Ranges of sequences that rules remove from files: in memory, or, if they are many, in files written by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.errors import StalePlanError
from retention.schemas.empty import empty_table
from retention.schemas.plan import REMOVED_RANGES, RULE_NUMBER

if TYPE_CHECKING:
    from retention.core.spans import Array
    from retention.rules.row_verdicts import Answer, StoredRanges

AT_A_TIME = 1 << 18
"""Ranges processed at a time, without a split of a file's ranges."""


@dataclass(frozen=True)
class StoredPart:
    """Ranges of neighbouring files, in a file written by a task."""

    stored: StoredRanges
    reached: bool
    """Whether the age scan reaches their span."""
    numbers: Array
    """Row numbers of the files in the task, ascending; other files are ignored."""
    files: Array
    """The current row number of each of them, ascending."""

    @classmethod
    def of(cls, stored: StoredRanges, *, reached: bool = True) -> StoredPart:
        """Stored ranges under the row numbers of their task."""
        numbers = np.unique(stored.counts["file"].to_numpy())
        return cls(stored, reached, numbers, numbers)

    def read(self) -> pa.Table:
        """The ranges, shape `REMOVED_RANGES`, by file.

        Raises:
            StalePlanError: the file is missing: it is deleted with the plan, by the process that made it.
            StorageError: the storage failed.
        """
        from retention.storage import scratch_files

        try:
            table = scratch_files.read_table(self.stored.place)
        except FileNotFoundError as error:
            raise StalePlanError(
                f"{self.stored.place}: the results of tasks for this plan are deleted; nothing was changed; plan again"
            ) from error
        ranges = _settle(table, reached=self.reached)
        stored = ranges["file"].to_numpy()
        at = np.minimum(np.searchsorted(self.numbers, stored), len(self.numbers) - 1)
        wanted = self.numbers[at] == stored
        numbered = ranges.set_column(0, REMOVED_RANGES.field("file"), pa.array(self.files[at]))
        return _rows_in(numbered, wanted)

    def renumbered(self, numbers: Array) -> StoredPart:
        """The same with new row numbers: `numbers` maps the current ones; a negative number omits a file."""
        renumbered = numbers[self.files]
        stay = renumbered >= 0
        return replace(self, numbers=self.numbers[stay], files=renumbered[stay])


@dataclass(frozen=True)
class FileRanges:
    """Removed ranges of one file, in memory or stored; picklable, so that tasks read them."""

    file: int
    in_memory: Array
    """Shape (n, 2)."""
    parts: tuple[StoredPart, ...]

    def read(self) -> Array:
        """The ranges, ascending, both ends inclusive; shape (n, 2)."""
        from retention.core.seq_ranges import union_of_ranges

        ranges = self.in_memory
        for part in self.parts:
            table = part.read()
            ranges = union_of_ranges(
                ranges, _ends(table.filter(pc.equal(table["file"], self.file)))
            )
        return ranges


@dataclass(frozen=True)
class RemovedRanges:
    """Ranges that rules remove from files; few are in memory, many are referenced in stored files."""

    in_memory: pa.Table = field(default_factory=partial(empty_table, REMOVED_RANGES))
    """Shape `REMOVED_RANGES`."""
    parts: tuple[StoredPart, ...] = ()
    """Ascending by file; different spans share no file."""

    def __bool__(self) -> bool:
        """Whether there are any ranges."""
        return self.in_memory.num_rows > 0 or len(self.parts) > 0

    @cached_property
    def _in_order(self) -> pa.Table:
        return _sorted(self.in_memory)

    @cached_property
    def _numbers(self) -> Array:
        return self._in_order["file"].to_numpy()

    @cached_property
    def _ends_in_memory(self) -> Array:
        return _ends(self._in_order)

    @cached_property
    def _parts_of_file(self) -> Mapping[int, Sequence[StoredPart]]:
        parts: dict[int, list[StoredPart]] = {}
        for part in self.parts:
            for number in part.files.tolist():
                parts.setdefault(number, []).append(part)
        return parts

    @property
    def table(self) -> pa.Table:
        """All ranges, shape `REMOVED_RANGES`, by file and first sequence; only for a known small number."""
        return pa.concat_tables([empty_table(REMOVED_RANGES), *self.tables()])

    @property
    def files(self) -> Array:
        """Row numbers of the files with ranges, ascending."""
        stored = (part.files for part in self.parts)
        return np.unique(np.concatenate([self._numbers, *stored]))

    def tables(self) -> Iterator[pa.Table]:
        """The ranges in pieces, shape `REMOVED_RANGES`, by file and first sequence; no file is in two pieces."""
        if not self:
            return
        held, numbers = self._in_order, self._numbers
        start = 0
        for low, high, parts in self._neighbours():
            first, end = np.searchsorted(numbers, [low, high + 1]).tolist()
            yield from _some(held.slice(start, first - start))
            together = [held.slice(first, end - first), *(part.read() for part in parts)]
            yield from _some(_sorted(pa.concat_tables(together)))
            start = end
        yield from _some(held.slice(start))

    def _neighbours(self) -> Iterator[tuple[int, int, list[StoredPart]]]:
        """Overlapping parts, with their lowest and highest file."""
        open_: tuple[int, int, list[StoredPart]] | None = None
        for part in sorted(self.parts, key=lambda part: int(part.files[0])):
            low, high = int(part.files[0]), int(part.files[-1])
            if open_ is not None and low <= open_[1]:
                open_ = (open_[0], max(open_[1], high), [*open_[2], part])
            else:
                if open_ is not None:
                    yield open_
                open_ = (low, high, [part])
        if open_ is not None:
            yield open_

    def of_file(self, number: int) -> pa.Table:
        """Ranges of one file, by its row number; shape `REMOVED_RANGES`, by first sequence."""
        tables = [self.in_memory, *(part.read() for part in self._parts_of_file.get(number, ()))]
        whole = pa.concat_tables(tables)
        return whole.filter(pc.equal(whole["file"], number)).sort_by("first_seq")

    def of_files(self, numbers: Array) -> list[Array | FileRanges]:
        """Ranges of several files, by ascending row numbers: arrays of shape (n, 2), or references to stored ranges."""
        if not len(numbers):
            return []
        ends, parts = self._ends_in_memory, self._parts_of_file
        bounds = np.searchsorted(self._numbers, np.stack([numbers, numbers + 1]))
        return [
            FileRanges(number, ends[start:end], tuple(parts[number]))
            if number in parts
            else ends[start:end]
            for number, start, end in zip(numbers.tolist(), *bounds.tolist(), strict=True)
        ]

    def renumbered(self, numbers: Array) -> RemovedRanges:
        """The same with new row numbers: `numbers` maps the current ones; a negative number omits a file."""
        if not self:
            return self
        renumbered = numbers[self.in_memory["file"].to_numpy()]
        held = self.in_memory.set_column(0, REMOVED_RANGES.field("file"), pa.array(renumbered))
        parts = (part.renumbered(numbers) for part in self.parts)
        return RemovedRanges(
            _rows_in(held, renumbered >= 0), tuple(part for part in parts if len(part.files))
        )

    def only(self, wanted: Array) -> RemovedRanges:
        """Ranges of the files in `wanted`, a mask."""
        return self.renumbered(np.where(wanted, np.arange(len(wanted)), -1))

    def joined(self, others: RemovedRanges) -> RemovedRanges:
        """The union with other ranges, under the same row numbers."""
        held = pa.concat_tables([self.in_memory, others.in_memory])
        return RemovedRanges(held, (*self.parts, *others.parts))

    def last_seq(self) -> int | None:
        """The highest sequence in any range; None: there are no ranges."""
        ends = [
            self.in_memory["last_seq"],
            *(part.stored.counts["last_seq"] for part in self.parts),
        ]
        highest = [pc.max(end).as_py() for end in ends]
        return max((seq for seq in highest if seq is not None), default=None)


class SpanRanges(Protocol):
    """The ranges in the answer of one span, in memory or stored."""

    @property
    def span(self) -> int:
        """The span's number."""
        ...

    @property
    def removed(self) -> pa.Table:
        """Shape `REMOVED_RANGES`; empty if they are stored."""
        ...

    @property
    def stored(self) -> StoredRanges | None:
        """None: they are in memory."""
        ...


def ranges_of(answers: Sequence[SpanRanges], stopped_at: int | None) -> RemovedRanges:
    """The ranges of answers, given the span in which the age scan ended; None: it ended in no span."""
    held = [_settle(answer.removed, reached=_reached(answer, stopped_at)) for answer in answers]
    parts = (
        StoredPart.of(answer.stored, reached=_reached(answer, stopped_at))
        for answer in answers
        if answer.stored is not None
    )
    return RemovedRanges(
        pa.concat_tables([empty_table(REMOVED_RANGES), *held]),
        tuple(part for part in parts if len(part.files)),
    )


def settled_counts(answer: Answer, stopped_at: int | None) -> pa.Table:
    """Removals by file and rule in a span: columns `file`, `rule`, `messages`, `bytes`; rows of the same key add up."""
    from retention.rules.row_verdicts import STAYS, settled

    counts = answer.counts
    rules = settled(counts["rule"].to_numpy(), reached=_reached(answer, stopped_at))
    at = counts.schema.names.index("rule")
    relabelled = counts.set_column(at, REMOVED_RANGES.field("rule"), pa.array(rules, RULE_NUMBER))
    wanted = ["file", "rule", "messages", "bytes"]
    return _rows_in(relabelled.select(wanted), rules != STAYS)


def _reached(answer: SpanRanges, stopped_at: int | None) -> bool:
    return stopped_at is None or answer.span <= stopped_at


def _sorted(ranges: pa.Table) -> pa.Table:
    from retention.core.row_order import in_order

    return in_order(ranges, ("file", "first_seq"))


def _settle(ranges: pa.Table, *, reached: bool) -> pa.Table:
    """Ranges with their final rules, without ranges that are kept; shape `REMOVED_RANGES`."""
    from retention.rules.row_verdicts import STAYS, settled

    rules = settled(ranges["rule"].to_numpy(), reached=reached)
    if np.array_equal(rules, ranges["rule"].to_numpy()):
        return ranges
    relabelled = ranges.set_column(1, REMOVED_RANGES.field("rule"), pa.array(rules, RULE_NUMBER))
    return _merged(relabelled.filter(pa.array(rules != STAYS)))


def _merged(ranges: pa.Table) -> pa.Table:
    """Merge neighbouring ranges of one rule in one file.

    For one rule and file, 4 to 6, 7 to 9 and 12 to 12 become 4 to 9 and 12 to 12: rows 0 and 2
    start a range, and rows 1 and 2 end one.
    """
    column = {name: ranges[name].to_numpy() for name in REMOVED_RANGES.names}
    joins = (
        (np.diff(column["file"]) == 0)
        & (np.diff(column["rule"]) == 0)
        & (column["first_seq"][1:] == column["last_seq"][:-1] + 1)
    )
    starts = np.setdiff1d(np.arange(ranges.num_rows), np.flatnonzero(joins) + 1)
    ends = np.append(starts[1:], ranges.num_rows) - 1
    merged = {name: column[name][starts] for name in ("file", "rule", "first_seq")}
    merged["last_seq"] = column["last_seq"][ends] if len(starts) else column["last_seq"]
    for name in ("messages", "bytes"):
        merged[name] = np.add.reduceat(column[name], starts) if len(starts) else column[name]
    return pa.table(merged).cast(REMOVED_RANGES)


def store_ranges(ranges: pa.Table, location: str) -> StoredRanges:
    """Write ranges of shape `REMOVED_RANGES` to a location; only sums by file remain in memory."""
    from retention.rules.row_verdicts import StoredRanges
    from retention.storage import scratch_files

    scratch_files.write_table(location, ranges)
    sums = [("messages", "sum"), ("bytes", "sum"), ("last_seq", "max")]
    counts = ranges.group_by(["file", "rule"]).aggregate(sums)
    names = {"messages_sum": "messages", "bytes_sum": "bytes", "last_seq_max": "last_seq"}
    counts = counts.rename_columns([names.get(name, name) for name in counts.schema.names])
    return StoredRanges(location, counts)


def _rows_in(table: pa.Table, mask: Array) -> pa.Table:
    """The rows in a mask, without a copy if these are all."""
    return table if mask.all() else table.filter(pa.array(mask))


def _some(table: pa.Table) -> Iterator[pa.Table]:
    """A table by file in pieces of at most `AT_A_TIME` rows, or of a single file."""
    file, start = table["file"].to_numpy(), 0
    while len(file) - start > AT_A_TIME:
        end = int(np.searchsorted(file, file[start + AT_A_TIME]))
        if end <= start:
            end = int(np.searchsorted(file, file[start], side="right"))
        yield table.slice(start, end - start)
        start = end
    if start < len(file):
        yield table.slice(start)


def _ends(ranges: pa.Table) -> Array:
    return np.stack([ranges[name].to_numpy() for name in ("first_seq", "last_seq")], axis=1)
