"""Payloads of small row groups that a merge copies as stored pages, while it decodes and encodes the other columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.inventory import DataFile
from retention.datafile import parquet
from retention.datafile.deadline_writer import BUFFER_BYTES
from retention.datafile.row_groups import COLUMNS, rows_of_group, stored_rows, with_time
from retention.schemas.messages import FILE_COLUMNS
from retention.storage.row_groups.footer import UnknownLayoutError
from retention.storage.row_groups.pages import count_plain_pages
from retention.storage.row_groups.plain_chunk import PlainPages, digest_of_pages

LEAST_PAYLOAD_BYTES = 64 << 10
"""The decoded bytes of the smallest payloads that are copied; pages of smaller ones compress worse, and are many."""
PAYLOAD = FILE_COLUMNS.get_field_index("payload")
OTHERS = [name for name in COLUMNS if name != "payload"]
"""The columns that are decoded; `time` is derived from `ts_ns`."""
_CODEC = "ZSTD"
_ENCODINGS = {"PLAIN", "RLE"}


@dataclass(frozen=True)
class PagedRows:
    """The rows of a row group, ascending, with their payloads in stored pages."""

    file: DataFile
    opened: pq.ParquetFile
    number: int
    rows: pa.Table
    """The columns `OTHERS`."""
    pages: PlainPages

    @property
    def nbytes(self) -> int:
        """About the bytes of the decoded rows."""
        return int(self.rows.nbytes) + self.pages.decoded_bytes

    def decoded(self) -> pa.Table:
        """The rows with their payloads, columns `COLUMNS`.

        Raises:
            DamagedError: the file cannot be read.
        """
        return rows_of_group(self.file, self.opened, self.number, COLUMNS)


@dataclass(frozen=True)
class PagedGroup:
    """A row group to write: its rows, and the pages of their payloads."""

    rows: pa.Table
    """Shape `FILE_COLUMNS`, without payloads."""
    pages: Sequence[PlainPages]

    @classmethod
    def of(cls, parts: Sequence[PagedRows]) -> PagedGroup:
        """The row group of successive rows."""
        together = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        return cls(with_time(without_payloads(together)), [part.pages for part in parts])

    @cached_property
    def digest(self) -> str:
        """The XXH3 of all pages, in hexadecimal."""
        return digest_of_pages(part for each in self.pages for part in each.parts)


@dataclass
class PagedBuffer:
    """Successive rows with stored payloads, up to a row group or `BUFFER_BYTES`."""

    parts: list[PagedRows] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0

    def has_room_for(self, part: PagedRows) -> bool:
        """Whether a row group of the buffered rows and these is not too large."""
        return (
            self.rows + part.rows.num_rows <= parquet.ROW_GROUP_ROWS
            and self.nbytes + part.nbytes <= BUFFER_BYTES
        )

    def take(self, part: PagedRows) -> None:
        """Buffer more rows."""
        self.parts.append(part)
        self.rows += part.rows.num_rows
        self.nbytes += part.nbytes

    def emptied(self) -> list[PagedRows]:
        """Empty the buffer, and return its content."""
        parts = self.parts
        self.parts, self.rows, self.nbytes = [], 0, 0
        return parts


def without_payloads(rows: pa.Table) -> pa.Table:
    """The rows, which have no payloads, with nulls in their place."""
    nulls = pa.nulls(rows.num_rows, FILE_COLUMNS.field(PAYLOAD).type)
    return rows.append_column(FILE_COLUMNS.field(PAYLOAD), nulls)


def load_paged(
    file: DataFile, opened: pq.ParquetFile, content: pa.NativeFile, number: int
) -> PagedRows | None:
    """A row group with the pages of its payloads; None: decode it, because they may not be copied, or a check failed.

    Args:
        file: a file of this engine that hides no rows.
        opened: the file.
        content: its bytes.
        number: the number of the row group.

    Raises:
        DamagedError: its other columns cannot be read.
    """
    group = opened.metadata.row_group(number)
    column = group.column(PAYLOAD)
    if not has_plain_payloads(group, column):
        return None
    content.seek(column.data_page_offset)
    stored = content.read_buffer(column.total_compressed_size)
    try:
        count = count_plain_pages(memoryview(stored), column.num_values)
    except UnknownLayoutError:
        return None
    rows = stored_rows(file, opened, number, OTHERS)
    seqs = rows["seq"].to_numpy()
    if not np.all(seqs[1:] > seqs[:-1]):
        return None
    pages = PlainPages([stored], count, column.total_uncompressed_size)
    return PagedRows(file, opened, number, rows, pages)


def has_plain_payloads(group: pq.RowGroupMetaData, column: pq.ColumnChunkMetaData) -> bool:
    """Whether the payloads of a row group of this engine are in pages that may be copied, by the footer."""
    return bool(
        column.total_uncompressed_size >= LEAST_PAYLOAD_BYTES
        and group.num_rows == column.num_values <= parquet.ROW_GROUP_ROWS
        and column.compression == _CODEC
        and set(column.encodings) == _ENCODINGS
        and not column.has_dictionary_page
    )
