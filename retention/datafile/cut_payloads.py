"""Payloads of row groups that lose some rows: cut out of stored pages, while the other columns are decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.inventory import DataFile
from retention.core.message_rows import accounted_sizes
from retention.core.seq_ranges import in_ranges
from retention.datafile.copied_payloads import (
    OTHERS,
    PAYLOAD,
    has_plain_payloads,
    without_payloads,
)
from retention.datafile.parquet import open_bytes, unreadable_error
from retention.datafile.row_groups import stored_rows, with_time
from retention.storage.row_groups.cut_pages import cut_pages
from retention.storage.row_groups.footer import UnknownLayoutError
from retention.storage.row_groups.pages import plain_pages
from retention.storage.row_groups.plain_chunk import PlainPages

VALUE_BYTES, RUN_BYTES = 128, 512
"""The bytes of payloads that take as long to decode and encode as a value takes to be found, and a run to be cut."""
_NO_BYTES = pa.scalar(0, pa.int64())


@dataclass(frozen=True)
class CutGroup:
    """A row group to write: its remaining rows, and the pages of their payloads."""

    rows: pa.Table
    """Shape `FILE_COLUMNS`, without payloads."""
    pages: Iterable[PlainPages]
    """Pages that are made one at a time, and only once."""


def may_be_cut(group: pq.RowGroupMetaData) -> bool:
    """Whether payloads of a row group of this engine may be cut, by the footer: plain, and long enough on average."""
    column = group.column(PAYLOAD)
    is_long = column.total_uncompressed_size >= VALUE_BYTES * group.num_rows
    return is_long and has_plain_payloads(group, column)


def load_cut(
    file: DataFile, opened: pq.ParquetFile, number: int, gone: np.ndarray, least_bytes: int
) -> CutGroup | None:
    """A row group without the sequences in ascending, disjoint ranges `gone`, shape (n, 2).

    None: decode it, because its payloads have another layout or are too short to be cut, or because few bytes remain.

    Args:
        file: a file of this engine.
        opened: the file.
        number: the number of a row group that `may_be_cut`.
        gone: the sequences.
        least_bytes: the decoded bytes that have to remain.

    Raises:
        DamagedError: it cannot be read; if that is true of a payload, when its page is made.
    """
    group = opened.metadata.row_group(number)
    column = group.column(PAYLOAD)
    rows = stored_rows(file, opened, number, OTHERS)
    keeps = ~in_ranges(rows["seq"].to_numpy(), gone)
    if not _is_worth_cutting(group, column, keeps, least_bytes):
        return None
    try:
        with open_bytes(file) as source:
            source.seek(column.data_page_offset)
            stored = source.read_buffer(column.total_compressed_size)
        pages = plain_pages(memoryview(stored), column.num_values)
    except (OSError, UnknownLayoutError):
        return None
    made = cut_pages(stored, pages, keeps, _probable_lengths(rows))
    remaining = rows.filter(pa.array(keeps))
    return CutGroup(with_time(without_payloads(remaining)), _named(file, made))


def _is_worth_cutting(
    group: pq.RowGroupMetaData,
    column: pq.ColumnChunkMetaData,
    keeps: np.ndarray,
    least_bytes: int,
) -> bool:
    kept = int(np.count_nonzero(keeps))
    if not kept or group.total_byte_size * kept < least_bytes * group.num_rows:
        return False
    runs = int(np.count_nonzero(keeps[1:] & ~keeps[:-1]) + keeps[0])
    payload_bytes = column.total_uncompressed_size * kept // group.num_rows
    return payload_bytes >= VALUE_BYTES * kept + RUN_BYTES * runs


def _probable_lengths(rows: pa.Table) -> np.ndarray:
    """The length of each payload by the broker's accounting, which adds a constant to it in memory and in topics."""
    subjects = pc.binary_length(rows["subject"])
    headers = pc.fill_null(pc.binary_length(rows["headers"]), 0)
    others = accounted_sizes(subjects, headers, _NO_BYTES, "file")
    lengths: np.ndarray = pc.subtract(rows["size"], others).to_numpy()
    return lengths


def _named(file: DataFile, pages: Iterator[PlainPages]) -> Iterator[PlainPages]:
    try:
        yield from pages
    except (OSError, pa.ArrowException, UnknownLayoutError) as error:
        raise unreadable_error(file, error) from error
