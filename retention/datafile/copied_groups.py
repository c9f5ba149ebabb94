"""Row groups of data files that new files get as bytes, undecoded: which ones may be, and the file that has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention.core.inventory import DataFile
from retention.core.message_rows import time_of
from retention.datafile.copied_payloads import PAYLOAD, PagedGroup
from retention.datafile.cut_payloads import CutGroup, load_cut, may_be_cut
from retention.datafile.footers import seq_bounds
from retention.datafile.parquet import ROW_GROUP_ROWS, open_bytes, parquet_writer, unreadable_error
from retention.schemas.messages import FILE_COLUMNS
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.digesting import DigestingSink
from retention.storage.row_groups.footer import Footer, UnknownLayoutError, read_footer
from retention.storage.row_groups.join import JoinedFile
from retention.storage.row_groups.plain_chunk import digest_of_pages
from retention.storage.row_groups.stored_group import (
    StoredGroup,
    check_group,
    load_group,
    load_pages,
)

LEAST_BYTES = 4 << 20
"""The decoded bytes of the smallest row group that is copied; smaller ones are merged with their neighbours' rows."""
MOST_BYTES = 256 << 20
"""The stored bytes of the largest row group that is copied, because it is in memory as a whole."""
_WRITER = "parquet-cpp-arrow "
"""The writer of data files: others order or truncate statistics differently, and a footer names only one writer."""


@dataclass(frozen=True)
class CopiedGroups:
    """The row groups of a data file that may be copied as bytes."""

    file: DataFile
    opened: pq.ParquetFile
    numbers: frozenset[int]
    """The large enough ones that lose nothing, by the footer."""
    losing: frozenset[int]
    """The large enough ones that may lose rows, and whose payloads may be cut, by the footer."""

    def load(self, number: int) -> StoredGroup | None:
        """A row group with all its bytes; None: decode it, because it may not be copied, or a check of it failed.

        Decoding it names the damage, if there is any.
        """
        if number not in self.numbers or self._footer is None or not self._is_as_written(number):
            return None
        try:
            with open_bytes(self.file) as source:
                group = load_group(source, self._footer, number)
            check_group(group)
        except (OSError, UnknownLayoutError):
            return None
        return group

    def cut(self, number: int, gone: np.ndarray) -> CutGroup | None:
        """A row group without the sequences `gone`; None: decode it, because it is not one to cut (`load_cut`).

        Raises:
            DamagedError: it cannot be read.
        """
        if number not in self.losing:
            return None
        return load_cut(self.file, self.opened, number, gone, LEAST_BYTES)

    @cached_property
    def _footer(self) -> Footer | None:
        """The footer with its offsets; None if the file has another shape than files of this engine."""
        try:
            with open_bytes(self.file) as source:
                footer = read_footer(source)
        except (OSError, UnknownLayoutError):
            return None
        return footer if footer.shape == _template().shape else None

    def _is_as_written(self, number: int) -> bool:
        """Whether rows are ascending, and `time` is derived from `ts_ns`: a copy keeps the work of other writers."""
        columns = ["seq", "ts_ns", "time"]
        try:
            rows = self.opened.read_row_group(number, columns=columns, use_threads=False)
        except (OSError, pa.ArrowException):
            return False
        seqs = rows["seq"].to_numpy()
        return bool(np.all(seqs[1:] > seqs[:-1]) and rows["time"].equals(time_of(rows["ts_ns"])))


def copied_groups(file: DataFile, opened: pq.ParquetFile, gone: np.ndarray) -> CopiedGroups:
    """The row groups that lose none of the sequences in ascending, disjoint ranges `gone`, shape (n, 2)."""
    metadata = opened.metadata
    large = [number for number in range(metadata.num_row_groups) if _is_large(metadata, number)]
    if not large or not is_of_this_engine(opened):
        return CopiedGroups(file, opened, frozenset(), frozenset())
    fitting = {number for number in large if _is_outside(gone, seq_bounds(opened, number))}
    losing = {number for number in large if may_be_cut(metadata.row_group(number))} - fitting
    return CopiedGroups(file, opened, frozenset(fitting), frozenset(losing))


@dataclass(frozen=True)
class WrittenParts:
    """A file of rows and row groups in bytes."""

    sha256: str
    copied: Mapping[int, str]
    """The number of each copied row group → the digest of its pages."""
    paged: Mapping[int, str]
    """The number of each row group with copied payloads → the digest of their pages."""


def write_parts(
    location: str, parts: Iterable[pa.Table | CutGroup | PagedGroup | StoredGroup]
) -> WrittenParts:
    """Write tables of shape `FILE_COLUMNS` and row groups in bytes, whole or only their payloads, as one file.

    It is durable on return.
    """
    digest, copied, paged = hashlib.sha256(), {}, {}
    with files.create_unshared(location) as sink:
        file = JoinedFile(DigestingSink(sink, digest))
        for part in parts:
            if isinstance(part, StoredGroup):
                copied[file.add(part)] = part.digest
            elif isinstance(part, PagedGroup | CutGroup):
                [group] = _encoded(part.rows)
                number = file.add_with_pages(group, PAYLOAD, part.pages)
                if isinstance(part, PagedGroup):
                    paged[number] = part.digest
            else:
                for group in _encoded(part):
                    file.add(group)
        file.finish(_template().fields)
    reached(Step.DATA_WRITTEN)
    return WrittenParts(digest.hexdigest(), copied, paged)


def digests_of_groups(
    file: DataFile, content: pa.NativeFile, numbers: Iterable[int]
) -> dict[int, str]:
    """The number of each of some row groups → the digest of its pages as they are stored; reads one at a time.

    Args:
        file: the file, which an error names.
        content: its bytes.
        numbers: the numbers of row groups.

    Raises:
        DamagedError: the file cannot be read.
    """
    with _as_unreadable(file):
        footer = read_footer(content)
        return {number: load_group(content, footer, number).digest for number in numbers}


def digests_of_payloads(
    file: DataFile, content: pa.NativeFile, numbers: Iterable[int]
) -> dict[int, str]:
    """The number of each of some row groups → the digest of its payloads' pages, as `digests_of_groups`.

    Raises:
        DamagedError: the file cannot be read.
    """
    with _as_unreadable(file):
        footer = read_footer(content)
        pages = ((number, load_pages(content, footer, number, PAYLOAD)) for number in numbers)
        return {number: digest_of_pages([each]) for number, each in pages}


@contextmanager
def _as_unreadable(file: DataFile) -> Iterator[None]:
    try:
        yield
    except (OSError, UnknownLayoutError) as error:
        raise unreadable_error(file, error) from error


def _encoded(rows: pa.Table) -> Iterator[StoredGroup]:
    """The row groups of a file with these rows."""
    content = pa.BufferOutputStream()
    with parquet_writer(content, rows) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
    with pa.BufferReader(content.getvalue()) as source:
        footer = read_footer(source)
        for number in range(len(footer.groups)):
            yield load_group(source, footer, number)


@cache
def _template() -> Footer:
    """The footer of a data file without rows."""
    content = pa.BufferOutputStream()
    parquet_writer(content, FILE_COLUMNS.empty_table()).close()
    with pa.BufferReader(content.getvalue()) as source:
        return read_footer(source)


def is_worth_copying(nbytes: int) -> bool:
    """Whether a row group of so many decoded bytes is large enough to remain one."""
    return nbytes >= LEAST_BYTES


def is_of_this_engine(opened: pq.ParquetFile) -> bool:
    """Whether a file has the writer, the columns and the types of data files."""
    written_by = opened.metadata.created_by
    return written_by.startswith(_WRITER) and opened.schema_arrow.equals(FILE_COLUMNS)


def _is_large(metadata: pq.FileMetaData, number: int) -> bool:
    group = metadata.row_group(number)
    if not is_worth_copying(group.total_byte_size):
        return False
    stored = sum(group.column(at).total_compressed_size for at in range(group.num_columns))
    return bool(stored <= MOST_BYTES)


def _is_outside(ranges: np.ndarray, bounds: tuple[int, int] | None) -> bool:
    """Whether no range has a sequence between the bounds of a row group; unknown bounds may be anywhere."""
    if bounds is None:
        return False
    first, after = (
        np.searchsorted(ranges[:, 1], bounds[0]),
        np.searchsorted(ranges[:, 0], bounds[1], "right"),
    )
    return bool(first == after)
