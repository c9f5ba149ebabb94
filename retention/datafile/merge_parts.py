"""The parts of a merged file, in order: row groups in bytes, row groups with copied payloads, and decoded rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from retention.core.inventory import DataFile
from retention.core.seq_ranges import ranges_in
from retention.datafile.copied_groups import copied_groups, is_of_this_engine, is_worth_copying
from retention.datafile.copied_payloads import PagedBuffer, PagedGroup, PagedRows, load_paged
from retention.datafile.deadline_writer import TableBuffer
from retention.datafile.parquet import open_with_bytes
from retention.datafile.row_groups import (
    COLUMNS,
    has_ordered_groups,
    merged_by_seq,
    opened_rows_in_order,
    rows_in_order,
    rows_of_group,
    with_time,
)
from retention.storage.row_groups.stored_group import StoredGroup

Spans: TypeAlias = Iterable[Sequence[DataFile]]
"""Files, ascending; only sequences of files in one span may interleave."""


def parts_of(spans: Spans) -> Iterator[pa.Table | PagedGroup | StoredGroup]:
    """The visible rows of spans of files in row groups to write; tables have the shape `FILE_COLUMNS`.

    Raises:
        DamagedError, ForeignRowsError: a file cannot be read, or breaks the rules of storage.
    """
    held = _Held()
    for part in _small_parts(spans):
        if isinstance(part, StoredGroup):
            yield from held.emptied()
            yield part
        elif isinstance(part, PagedRows):
            yield from held.taking_paged(part)
        else:
            yield from held.taking(part)
    yield from held.emptied()


def rows_of(spans: Spans) -> Iterator[pa.Table]:
    """The visible rows of spans of files, all decoded, in large tables of shape `FILE_COLUMNS`.

    Raises:
        DamagedError, ForeignRowsError: as `parts_of`.
    """
    held = TableBuffer()
    for rows in _decoded(spans):
        if held.takes(rows):
            yield _complete(held)
    if held.rows:
        yield _complete(held)


@dataclass
class _Held:
    """Successive rows that wait until they are a row group; at most one of both buffers has any."""

    tables: TableBuffer = field(default_factory=TableBuffer)
    paged: PagedBuffer = field(default_factory=PagedBuffer)

    def taking(self, rows: pa.Table) -> Iterator[pa.Table | PagedGroup]:
        """Add decoded rows; yields what is large enough before."""
        yield from self._paged_emptied()
        if self.tables.takes(rows):
            yield _complete(self.tables)

    def taking_paged(self, part: PagedRows) -> Iterator[pa.Table | PagedGroup]:
        """Add rows with stored payloads, decoded if they follow only few others; yields as `taking`."""
        if not self.paged.has_room_for(part):
            yield from self._paged_emptied()
        if self.tables.rows and not is_worth_copying(self.tables.nbytes):
            yield from self.taking(part.decoded())
            return
        if self.tables.rows:
            yield _complete(self.tables)
        self.paged.take(part)

    def emptied(self) -> Iterator[pa.Table | PagedGroup]:
        """Empty both buffers."""
        yield from self._paged_emptied()
        if self.tables.rows:
            yield _complete(self.tables)

    def _paged_emptied(self) -> Iterator[pa.Table | PagedGroup]:
        """Empty the buffer of stored payloads, into that of decoded rows if they are few."""
        is_large = is_worth_copying(self.paged.nbytes)
        parts = self.paged.emptied()
        if is_large:
            yield PagedGroup.of(parts)
            return
        for part in parts:
            if self.tables.takes(part.decoded()):
                yield _complete(self.tables)


def _complete(held: TableBuffer) -> pa.Table:
    return with_time(held.emptied().combine_chunks())


def _small_parts(spans: Spans) -> Iterator[pa.Table | PagedRows | StoredGroup]:
    """The visible rows, as they are stored in row groups; tables have `COLUMNS`."""
    for span in spans:
        if len(span) == 1:
            yield from _parts_of_file(span[0])
        else:
            yield from _decoded([span])


def _parts_of_file(file: DataFile) -> Iterator[pa.Table | PagedRows | StoredGroup]:
    opened, content = open_with_bytes(file)
    gone = ranges_in(file.hidden)
    if not has_ordered_groups(opened):
        yield from opened_rows_in_order(file, opened, COLUMNS)
        return
    copied = copied_groups(file, opened, gone)
    may_be_paged = not len(gone) and is_of_this_engine(opened)
    for number in range(opened.metadata.num_row_groups):
        part: PagedRows | StoredGroup | None = copied.load(number)
        if part is None and may_be_paged:
            part = load_paged(file, opened, content, number)
        yield rows_of_group(file, opened, number, COLUMNS) if part is None else part


def _decoded(spans: Spans) -> Iterator[pa.Table]:
    """The visible rows with `COLUMNS`; copies derive `time` from `ts_ns`."""
    for span in spans:
        yield from merged_by_seq([rows_in_order(file, COLUMNS) for file in span])
