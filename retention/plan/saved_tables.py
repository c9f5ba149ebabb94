"""Tables of saved plans: Parquet files written and read in pieces, and verified by digest."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.storage import files
from retention.storage.parquet_pieces import pieces_of_group

GROUP_VALUES = 1 << 20
"""The maximum rows of a row group, and values of its lists; the lists of one row are never split."""
READ_VALUES = 1 << 16
"""The approximate number of rows, or list values, decoded at a time."""
_SPOOLED_BYTES = 8 << 20
_NUMBERS = (pa.int32(), pa.int64())


def is_table(columns: set[str], source: Any) -> bool:
    """Whether an open file is a Parquet table of these columns.

    Raises:
        ValueError, OSError: it is not a Parquet file.
    """
    return set(pq.ParquetFile(source).schema_arrow.names) == columns


def write_table(location: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> str:
    """Write a table from pieces; returns the SHA-256 of the file, independent of the pieces.

    Args:
        location: the location of the file; existing content is replaced.
        schema: the schema of every piece.
        tables: the pieces.

    Raises:
        StorageError: the storage failed.
    """
    with files.create(location) as sink:
        digesting = _Digesting(sink)
        with pq.ParquetWriter(
            digesting,
            schema,
            compression="zstd",
            use_dictionary=[name for name in ("action", "rule") if name in schema.names],
            column_encoding=_encodings(schema),
            write_statistics=False,
        ) as writer:
            for group in _groups(tables, schema):
                writer.write_table(group)
                # Free the group now: the name would keep it until the next one is complete.
                del group
    return digesting.digest.hexdigest()


class VerifiedTable:
    """A private, immutable copy of a table; deleted with the object."""

    def __init__(self) -> None:
        self.content = SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115
        weakref.finalize(self, self.content.close)

    def pieces(self) -> Iterator[pa.Table]:
        """The rows in pieces; at least one table, possibly empty.

        Raises:
            ValueError, OSError: they cannot be decoded.
        """
        opened = pq.ParquetFile(self.content)
        yield opened.schema_arrow.empty_table()
        for group in range(opened.metadata.num_row_groups):
            yield from pieces_of_group(opened, group, READ_VALUES)


def verified_table(location: str, sha256: str) -> VerifiedTable | None:
    """Copy a table; None: the file has another digest.

    Raises:
        FileNotFoundError: the file does not exist.
        StorageError: the storage failed.
    """
    copy, digest = VerifiedTable(), hashlib.sha256()
    for piece in files.chunks(location, _SPOOLED_BYTES):
        digest.update(piece)
        copy.content.write(piece)
    return copy if digest.hexdigest() == sha256 else None


class _Digesting:
    """A sink that digests the bytes written to it."""

    closed = False

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.digest = hashlib.sha256()

    def write(self, piece: bytes) -> int:
        self.digest.update(piece)
        self._sink.write(piece)
        return len(piece)

    def flush(self) -> None:
        self._sink.flush()


def _groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """The row groups of a table, independent of its pieces; an empty table has one empty group."""
    waiting, rows, values = [schema.empty_table()], 0, 0
    for table in tables:
        lengths, start = _list_lengths(table), 0
        ends = np.cumsum(lengths)
        while start < table.num_rows:
            before = int(ends[start] - lengths[start])
            end = int(np.searchsorted(ends, before + GROUP_VALUES - values, side="right"))
            end = min(end, start + GROUP_VALUES - rows)
            if end <= start and rows:
                yield _taken(waiting)
                rows, values = 0, 0
                continue
            end = max(end, start + 1)
            waiting.append(table.slice(start, end - start))
            rows, values = rows + end - start, values + int(ends[end - 1]) - before
            start = end
    yield _taken(waiting)


def _taken(waiting: list[pa.Table]) -> pa.Table:
    """Concatenate the waiting tables, and clear the list."""
    together = pa.concat_tables(waiting)
    waiting.clear()
    return together.combine_chunks()


def _list_lengths(table: pa.Table) -> np.ndarray:
    """The number of values in the lists of each row; 0 in a table without lists."""
    lists = [field.name for field in table.schema if pa.types.is_list(field.type)]
    if not lists:
        return np.zeros(table.num_rows, dtype=np.int64)
    lengths: np.ndarray = pc.list_value_length(table[lists[0]]).to_numpy()
    return lengths.astype(np.int64)


def _encodings(schema: pa.Schema) -> dict[str, str]:
    """Encodings for columns of numbers and paths, which change little from row to row."""
    leaves = {
        f"{field.name}.list.element": field.type.value_type
        for field in schema
        if pa.types.is_list(field.type)
    }
    leaves |= {field.name: field.type for field in schema}
    numbers = {leaf: "DELTA_BINARY_PACKED" for leaf, kind in leaves.items() if kind in _NUMBERS}
    return numbers | ({"path": "DELTA_BYTE_ARRAY"} if "path" in schema.names else {})
