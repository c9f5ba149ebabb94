"""Rows of a Parquet file of any writer, by position: streamed in its own types, and written to a new file as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from math import inf
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from retention.delta.schema import FileColumns
from retention.errors import DamagedError, RetentionError, VerificationError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.digesting import DigestingSink
from retention.storage.errors import first_line, is_of_storage, storage_error

BATCH_BYTES = 8 << 20
"""The approximate bytes to decode at a time."""
GROUP_BYTES = 64 << 20
"""The approximate bytes to buffer for one row group; a row may have megabytes."""
_WORTH = 0.8
"""The share of its plain size below which a column is worth a dictionary."""
_CODECS = ("SNAPPY", "GZIP", "BROTLI", "ZSTD")
_DEFAULT_CODEC = "ZSTD"


class ParquetSource:
    """A data file of a table, open for reading."""

    def __init__(self, root: str, metadata: Mapping[str, Any], add: Mapping[str, Any]) -> None:
        """Open the file that an `add` action names.

        Raises:
            DamagedError: it is missing, or no readable Parquet file.
        """
        self.location = files.join(root, unquote(add["path"]))
        with self._readable():
            self._file = pq.ParquetFile(
                files.open_input(self.location), pre_buffer=True, coerce_int96_timestamp_unit="us"
            )
            self.columns = FileColumns(metadata, self._file.schema_arrow)
        self.schema = self.columns.zoned()
        """Arrow's types of the file itself; INT96 values have microseconds, and a zone if they are instants."""
        self.rows: int = self._file.metadata.num_rows

    @property
    def codec(self) -> str:
        """The compression of its first column; Zstandard if that is unknown or none is stated."""
        groups = self._file.metadata
        if not groups.num_row_groups or not groups.num_columns:
            return _DEFAULT_CODEC
        codec = groups.row_group(0).column(0).compression
        return "NONE" if codec == "UNCOMPRESSED" else codec if codec in _CODECS else _DEFAULT_CODEC

    @property
    def group_rows(self) -> int:
        """The rows of its largest row group."""
        groups = self._file.metadata
        sizes = (groups.row_group(number).num_rows for number in range(groups.num_row_groups))
        return max([1, *sizes])

    def dictionaries(self, rows: pa.Table) -> list[str]:
        """The paths of the columns that have dictionaries which make them smaller: others cost a copy much time.

        Args:
            rows: some of its rows, which tell how long plain values are.
        """
        if not self._file.num_row_groups:
            return []
        group = self._file.metadata.row_group(0)
        chunks = (group.column(number) for number in range(group.num_columns))
        return [
            chunk.path_in_schema
            for chunk in chunks
            if any("DICTIONARY" in encoding for encoding in chunk.encodings)
            and chunk.total_uncompressed_size < _WORTH * _plain_size(chunk, rows)
        ]

    def rows_where(
        self, selected: Callable[[BitMap64], BitMap64]
    ) -> Iterator[tuple[np.ndarray, pa.Table]]:
        """Some rows, in tables of about `BATCH_BYTES`, each with the positions of its rows: shape (n,), int64.

        Args:
            selected: the wanted ones of a range of positions; row groups without any are not read.

        Raises:
            DamagedError: the file cannot be read to its end.
        """
        begin = 0
        for number in range(self._file.num_row_groups):
            group = self._file.metadata.row_group(number)
            end = begin + group.num_rows
            if selected(BitMap64(range(begin, end))):
                yield from self._selected(number, begin, selected)
            begin = end

    def _selected(
        self, number: int, begin: int, selected: Callable[[BitMap64], BitMap64]
    ) -> Iterator[tuple[np.ndarray, pa.Table]]:
        group = self._file.metadata.row_group(number)
        fitting = BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
        with self._readable():
            for batch in self._file.iter_batches(max(fitting, 1), row_groups=[number]):
                end = begin + batch.num_rows
                positions = np.array(selected(BitMap64(range(begin, end))).to_array(), np.int64)
                rows = pa.Table.from_batches([batch])
                if rows.schema != self.schema:
                    rows = rows.cast(self.schema)
                if len(positions) < batch.num_rows:
                    rows = rows.take(pa.array(positions - begin))
                if len(positions):
                    yield positions, rows
                begin = end

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except RetentionError:
            raise
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and is_of_storage(error):
                raise storage_error(self.location, error) from error
            why = "it is missing" if isinstance(error, FileNotFoundError) else first_line(error)
            raise DamagedError(
                f"{self.location}: cannot be read as a data file of the table ({why}); nothing was changed; restore "
                "that file from a copy"
            ) from error


def write_rows(
    location: str, source: ParquetSource, schema: pa.Schema, tables: Iterable[pa.Table]
) -> tuple[int, str]:
    """Write tables to a new Parquet file, in the source's compression and size of row groups; durable on return.

    Returns:
        The number of rows, and the SHA-256 of the file.
    """
    rows, digest = 0, hashlib.sha256()
    files.make_directory(location.rpartition("/")[0])
    groups = _groups(tables, source.group_rows)
    first = next(groups, schema.empty_table())
    with (
        files.create_unshared(location) as sink,
        pq.ParquetWriter(
            DigestingSink(sink, digest),
            schema,
            compression=source.codec,
            use_dictionary=source.dictionaries(first),
            write_page_checksum=True,
        ) as writer,
    ):
        for group in chain([first], groups):
            writer.write_table(group, source.group_rows)
            rows += group.num_rows
    return rows, digest.hexdigest()


def _plain_size(chunk: pq.ColumnChunkMetaData, rows: pa.Table) -> float:
    """The bytes of a column's values without a dictionary; infinite where rows do not tell."""
    name = chunk.path_in_schema
    if name not in rows.schema.names or not rows.num_rows:
        return inf
    values = rows[name]
    return (
        inf
        if pa.types.is_dictionary(values.type)
        else values.nbytes / len(values) * chunk.num_values
    )


def _groups(tables: Iterable[pa.Table], group_rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of `group_rows`, or `GROUP_BYTES`; the last has fewer."""
    buffered: pa.Table | None = None
    for table in tables:
        buffered = table if buffered is None else pa.concat_tables([buffered, table])
        while buffered.num_rows >= group_rows or buffered.nbytes >= GROUP_BYTES:
            yield buffered.slice(0, group_rows)
            buffered = buffered.slice(group_rows)
    if buffered is not None and buffered.num_rows:
        yield buffered


def check_rows(location: str, rows: int, expected: int) -> None:
    """Read the count of a new file's rows back, and delete the file if it is wrong.

    Raises:
        VerificationError: it has, or got, another number of rows than expected.
    """
    with files.reading(location) as written:
        stored = pq.ParquetFile(written).metadata.num_rows
    if not rows == stored == expected:
        files.delete([location])
        reached(Step.STAGED_DISCARDED)
        raise VerificationError(
            f"{location}: the copy got {rows} rows and has {stored}, not {expected}; it was deleted, and nothing was "
            "committed; plan again"
        )
