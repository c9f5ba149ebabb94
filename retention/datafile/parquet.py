"""Data files as Parquet: writes rows, reads narrow columns, describes files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile
from retention.core.read_count import ReadCount
from retention.core.seq_ranges import columns_with_seq, visible_rows
from retention.core.spoken_commands import given_up
from retention.core.wording import counted
from retention.datafile.expected_stats import check_footer, check_rows
from retention.datafile.footers import compressed_bytes, ids_in
from retention.datafile.row_stats import row_stats
from retention.datafile.subject_digest import SubjectDigest, count_subjects, digest_at
from retention.errors import (
    DamagedError,
    ForeignRowsError,
    ImpossibleNumbersError,
    RetentionError,
    StorageError,
)
from retention.schemas.bounds import MAX_SEQ, MAX_SIZE
from retention.schemas.empty import empty_table
from retention.schemas.files import FILE_STATS, FileStats, RowStats
from retention.schemas.messages import FILE_COLUMNS, MESSAGES, RULE_COLUMNS
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.digesting import digesting_beside
from retention.storage.errors import first_line, is_of_storage, storage_error
from retention.storage.sidecar import Sidecar
from retention.storage.tables import delta_encodings, in_memory

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROW_GROUP_ROWS = 65_536
SMALL_BYTES = 8 << 20
"""The length up to which reading a whole file beats seeking in it, and one thread beats several at decoding it."""
_FEW_ROWS = 1 << 12
"""The rows up to which handing columns to threads costs more than reading them."""
REQUIRED = tuple(field.name for field in FILE_COLUMNS if not field.nullable)
_STATISTICS = ["seq", "ts_ns", "size", "deadline_ns", "time", "msg_id"]
_DICTIONARY = ["subject"]
_SAMPLED_ROWS, _DISTINCT = 4_096, 0.99
"""The share of distinct subjects in so many rows from which on a dictionary of them takes more time and bytes."""
_ENCODINGS = delta_encodings(FILE_COLUMNS, _DICTIONARY) | {"time": "DELTA_BINARY_PACKED"}
"""Numbers as differences: most columns of a narrow read take a quarter of the time."""
_CODED_SUBJECT_BYTES = 4
"""The bytes a row, with the share of a dictionary, up to which subjects are few: with more, codes take longer."""
_NAMED = {"seq": "the sequence", "size": "a size of"}


@dataclass(frozen=True)
class Description:
    """The statistics of a data file, read from its narrow columns."""

    stats: FileStats
    read: ReadCount


def write_messages(location: str, batches: Iterable[pa.Table]) -> str:
    """Write tables of shape `FILE_COLUMNS` as one Parquet file, durable on return; returns its SHA-256."""
    with open_message_writer(location) as (write, digest):
        for batch in batches:
            write(batch)
    return digest.hexdigest()


@contextmanager
def open_message_writer(
    location: str,
) -> Iterator[tuple[Callable[[pa.Table], None], hashlib._Hash]]:
    """Open a new Parquet file for tables of `FILE_COLUMNS`; it has no other writer, and is durable after the block.

    Yields:
        The function that writes a table, and the SHA-256 of the bytes, which is complete after the block.
    """
    digest = hashlib.sha256()
    with (
        files.create_unshared(location) as sink,
        digesting_beside(sink, digest) as passing,
        closing(_Written(passing)) as written,
    ):
        yield written.write, digest
    reached(Step.DATA_WRITTEN)


class _Written:
    """A data file that is written, with settings for its first table."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Write a table."""
        self._writer = self._writer or parquet_writer(self._sink, rows)
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)

    def close(self) -> None:
        """Write the footer."""
        (self._writer or parquet_writer(self._sink, FILE_COLUMNS.empty_table())).close()


def parquet_writer(sink: Any, rows: pa.Table) -> pq.ParquetWriter:
    """A writer of tables of `FILE_COLUMNS` to an open file, with the settings of a data file of such `rows`."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        sink,
        FILE_COLUMNS,
        compression="zstd",
        use_dictionary=_DICTIONARY if _repeats_subjects(rows) else False,
        column_encoding=_ENCODINGS,
        write_statistics=_STATISTICS,
        write_page_checksum=True,
        max_rows_per_page=ROW_GROUP_ROWS,
    )


def _repeats_subjects(rows: pa.Table) -> bool:
    """Whether a dictionary of subjects is worth its time, judged by evenly spaced rows."""
    if rows.num_rows < _SAMPLED_ROWS:
        return True
    spaced = np.arange(0, rows.num_rows, rows.num_rows // _SAMPLED_ROWS)
    sample = rows["subject"].take(pa.array(spaced))
    return bool(pc.count_distinct(sample).as_py() < _DISTINCT * len(sample))


def open_messages(file: DataFile) -> pq.ParquetFile:
    """Open a data file.

    Raises:
        DamagedError: it is missing, is not a readable Parquet file, or differs from the expected statistics.
        ForeignRowsError: a column is missing or has another type.
    """
    return _opened(file, open_bytes)


def open_all_messages(file: DataFile) -> pq.ParquetFile:
    """Open a data file to read every row; a small file is read at once, in one request to an object store.

    Raises:
        DamagedError, ForeignRowsError: as `open_messages`.
    """
    return _opened(file, _read_if_small)


def open_with_bytes(file: DataFile) -> tuple[pq.ParquetFile, pa.NativeFile]:
    """Open a data file as `open_all_messages`; returns it, and its bytes.

    Raises:
        DamagedError, ForeignRowsError: as `open_messages`.
    """
    with _as_unreadable(file):
        content = _read_if_small(file)
    return _opened(file, lambda _: content), content


def _opened(file: DataFile, source: Callable[[DataFile], pa.NativeFile]) -> pq.ParquetFile:
    with _as_unreadable(file):
        opened = _reader(source(file))
    _check_columns(file, opened.schema_arrow)
    check_footer(file, opened)
    return opened


def _open_to_count(file: DataFile) -> pq.ParquetFile:
    """Open a data file; subjects are read as codes of a dictionary if they are few, since codes are counted faster."""
    with _as_unreadable(file):
        content = open_bytes(file)
    opened = _opened(file, lambda _: content)
    if not _has_few_subjects(opened):
        return opened
    with _as_unreadable(file):
        return _reader(content, metadata=opened.metadata, read_dictionary=["subject"])


def _reader(content: pa.NativeFile, **settings: Any) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        content,
        pre_buffer=not isinstance(content, pa.BufferReader),
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        **settings,
    )


@contextmanager
def _as_unreadable(file: DataFile) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error


def _has_few_subjects(opened: pq.ParquetFile) -> bool:
    metadata, at = opened.metadata, opened.schema_arrow.get_field_index("subject")
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    decoded = sum(group.column(at).total_uncompressed_size for group in groups)
    is_text = opened.schema_arrow.field(at).type == pa.string()
    return is_text and bool(decoded <= _CODED_SUBJECT_BYTES * metadata.num_rows)


def _read_if_small(file: DataFile) -> pa.NativeFile:
    return in_memory(open_bytes(file), SMALL_BYTES)


def open_bytes(file: DataFile) -> pa.NativeFile:
    """Open the bytes of a data file, at its place or, if it was moved since, at the later one.

    Raises:
        FileNotFoundError: it is at neither.
        StorageError: the storage failed.
    """
    try:
        return files.open_input(file.location)
    except FileNotFoundError:
        if file.later is None:
            raise
        return files.open_input(file.later)


def read_columns(
    file: DataFile, columns: Sequence[str] = RULE_COLUMNS
) -> tuple[pa.Table, ReadCount]:
    """Read columns of a whole data file, ascending by `seq`, without hidden rows, and count the bytes read.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    return _read(file, open_messages(file), columns)


def _read(
    file: DataFile, opened: pq.ParquetFile, columns: Sequence[str]
) -> tuple[pa.Table, ReadCount]:
    try:
        is_large = opened.metadata.num_rows > _FEW_ROWS
        table = opened.read(columns=columns_with_seq(file, columns), use_threads=is_large)
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error
    table = visible_rows(file, table).select(columns)
    table = table.cast(pa.schema([_readable_field(table.schema.field(name)) for name in columns]))
    check_rows(file, table)
    return in_sequence_order(table), ReadCount(1, compressed_bytes(opened, columns))


def _readable_field(given: pa.Field) -> pa.Field:
    """The nullable field of message tables with the name of a given one; a dictionary of subjects remains one."""
    type_ = (
        given.type if pa.types.is_dictionary(given.type) else FILE_COLUMNS.field(given.name).type
    )
    return pa.field(given.name, type_)


def describe(file: DataFile) -> Description:
    """Read a data file's narrow columns, write its subject digest, and return its statistics.

    Raises:
        DamagedError: the file cannot be read.
        ForeignRowsError: a required value is null, or a sequence occurs twice in the file.
    """
    opened = _open_to_count(file)
    rows, read = _read(file, opened, RULE_COLUMNS)
    for name in REQUIRED:
        if rows[name].null_count:
            raise ForeignRowsError(
                f"{file.location}: {counted(rows[name].null_count, 'row has', 'rows have')} no {name}; another writer "
                f"appended them, nothing was changed; rewrite that file with every {name} set"
                f"{given_up(file.stream, file.path)}"
            )
    with files.if_writable():
        place = digest_at(file.digest_location)
        digest = SubjectDigest(count_subjects(rows), ids_in(opened), sha256=_digest_of(file, place))
        place.write(digest)
    try:
        size, modified_ms = files.stat(file.location)
    except FileNotFoundError as error:
        raise unreadable_error(file, error) from error
    stats: FileStats = {
        "path": file.path,
        "partition": file.partition,
        "segment": file.segment,
        "file_bytes": size,
        "modified_ms": modified_ms,
        **_checked_stats(file, rows),
    }
    return Description(stats, read)


def _digest_of(file: DataFile, place: Sidecar[SubjectDigest]) -> str | None:
    """The digest taken while a file was written, by this process or, as recorded, by an earlier one."""
    if file.sha256 is not None:
        return file.sha256
    recorded = place.load()
    return None if recorded is None else recorded.sha256


def stats_table(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows of statistics as one table of shape `FILE_STATS`."""
    return pa.Table.from_pylist(list(rows), schema=FILE_STATS) if rows else empty_table(FILE_STATS)


def _check_columns(file: DataFile, schema: pa.Schema) -> None:
    for wanted in FILE_COLUMNS:
        at = schema.get_field_index(wanted.name)
        if at < 0:
            raise ForeignRowsError(
                f"{file.location}: the column {wanted.name} is missing; another writer appended this file, nothing "
                "was changed; rewrite it with all columns of a message table"
                f"{given_up(file.stream, file.path)}"
            )
        if schema.field(at).type != wanted.type and not _readable_as(
            schema.field(at).type, wanted.type
        ):
            raise ForeignRowsError(
                f"{file.location}: the column {wanted.name} is {schema.field(at).type}, not {wanted.type}; another "
                "writer appended this file, nothing was changed; rewrite it with the types of a message table"
                f"{given_up(file.stream, file.path)}"
            )


def further_columns(file: DataFile) -> list[str]:
    """The columns of a data file that are not message or partition columns; a rewrite would lose them.

    Raises:
        DamagedError, ForeignRowsError: as `open_messages`.
    """
    return [name for name in open_messages(file).schema_arrow.names if name not in MESSAGES.names]


def _readable_as(given: pa.DataType, wanted: pa.DataType) -> bool:
    text = given in (pa.large_string(), pa.string_view()) and wanted == pa.string()
    octets = given in (pa.large_binary(), pa.binary_view()) and wanted == pa.binary()
    instants = pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted)
    return text or octets or instants


def in_sequence_order(table: pa.Table) -> pa.Table:
    """The rows, ascending by `seq`; unchanged without that column, or with nulls in it."""
    if "seq" not in table.schema.names or table["seq"].null_count:
        return table
    seqs = table["seq"].to_numpy()
    if np.all(seqs[1:] > seqs[:-1]):
        return table
    return table.take(pa.array(np.argsort(seqs, kind="stable")))


def _checked_stats(file: DataFile, rows: pa.Table) -> RowStats:
    if not rows.num_rows:
        raise ForeignRowsError(
            f"{file.location}: the file has no rows; nothing was changed; write it again with rows"
            f"{given_up(file.stream, file.path)}"
        )
    seqs = rows["seq"].to_numpy()
    _refuse_impossible(file, rows)
    twice = np.flatnonzero(seqs[1:] == seqs[:-1])
    if len(twice):
        raise ForeignRowsError(
            f"{file.location}: sequence {seqs[twice[0]]} occurs in it twice; the table is corrupt, nothing was "
            "changed; restore the file from a copy, or delete the doubled row with the program that wrote it"
            f"{given_up(file.stream, file.path)}"
        )
    return row_stats(rows)


def _refuse_impossible(file: DataFile, rows: pa.Table) -> None:
    for name, most, bound in (("seq", MAX_SEQ, "2^62"), ("size", MAX_SIZE, "4 GiB")):
        extremes = pc.min_max(rows[name]).as_py()
        beyond = [value for value in extremes.values() if not 0 <= value <= most]
        if beyond:
            raise ImpossibleNumbersError(
                f"{file.location}: a row has {_NAMED[name]} {beyond[0]}, which lies between 0 and {bound}; another "
                "writer appended it, nothing was changed; rewrite that file with valid rows"
                f"{given_up(file.stream, file.path)}"
            )


def unreadable_error(file: DataFile, error: Exception) -> RetentionError:
    """The error for an unreadable data file: the storage's error if the storage failed."""
    if isinstance(error, StorageError):
        return error
    if isinstance(error, OSError) and is_of_storage(error):
        return storage_error(file.location, error)
    return DamagedError(
        f"{file.location}: cannot be read as a data file of segment {file.segment} ({first_line(error)}); nothing was "
        f"changed; restore that file from a copy{given_up(file.stream, file.path)}"
    )
