"""Tables at rest in files: encoded and read a piece at a time, so that they need not fit into memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_NUMBERS = (pa.int32(), pa.int64())
_SMALL_BYTES = 1 << 20


def encoded(open_writer: Callable[[IO[bytes]], Any], tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """The bytes of a file of tables: a piece after each table, and the end of the file.

    Args:
        open_writer: opens a writer of Arrow or Parquet on a sink.
        tables: the tables, each of which is released once it is encoded.
    """
    sink = io.BytesIO()

    def emptied() -> bytes:
        piece = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return piece

    with open_writer(sink) as writer:
        for table in tables:
            writer.write_table(table)
            # The name would keep the table until the next one is complete.
            del table
            yield emptied()
    yield emptied()


def _default_encodings(schema: pa.Schema) -> Mapping[str, Any]:
    del schema
    return {}


def write_parquet(
    sink: Any,
    tables: Iterator[pa.Table],
    metadata: Mapping[str | bytes, str | bytes],
    encodings: Callable[[pa.Schema], Mapping[str, Any]] = _default_encodings,
) -> None:
    """Write tables as one Parquet file, a table at a time.

    Args:
        sink: an open file of Arrow or Python.
        tables: at least one; the others are cast to the shape of the first.
        metadata: the metadata of the schema.
        encodings: the options of `ParquetWriter` for a schema.
    """
    import pyarrow.parquet as pq

    first = next(tables)
    schema = first.schema.with_metadata(metadata)
    with pq.ParquetWriter(sink, schema, compression="zstd", **encodings(schema)) as writer:
        for table in chain([first], tables):
            writer.write_table(table.cast(schema))


def in_memory(source: pa.NativeFile, most_bytes: int = _SMALL_BYTES) -> pa.NativeFile:
    """A file for random reads; one of at most `most_bytes` is read at once, because each column would be a read."""
    if source.size() > most_bytes:
        return source
    return pa.BufferReader(source.read_buffer())


def in_shape(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the types of a schema; unchanged if it has them."""
    return table if table.schema.equals(schema) else table.cast(schema)


def encode_file(
    schema: pa.Schema, tables: Iterable[pa.Table], options: pa.ipc.IpcWriteOptions | None = None
) -> bytes:
    """Tables as an Arrow file in memory: its many parts are written without a call of Python each."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for table in tables:
            writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def encode_stream(table: pa.Table, compression: str | None = None) -> bytes:
    """A small table as an Arrow stream in memory."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_stream(stream: bytes | memoryview) -> pa.Table:
    """The table of an Arrow stream in memory.

    Raises:
        ValueError, pyarrow.ArrowException: the bytes are not a stream.
    """
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_all()


def row_groups(
    tables: Iterable[pa.Table], schema: pa.Schema, most_rows: int, most_values: int
) -> Iterator[pa.Table]:
    """The row groups of a table, independent of its pieces; an empty table has one empty group.

    Args:
        tables: the pieces.
        schema: the schema of every piece.
        most_rows: the maximum rows of a group.
        most_values: the maximum values of a list column in a group; a single row may have more.
    """
    waiting, rows, values = [schema.empty_table()], 0, 0
    for table in tables:
        lengths, start = _list_lengths(table), 0
        ends = np.cumsum(lengths)
        while start < table.num_rows:
            before = int(ends[start] - lengths[start])
            end = int(np.searchsorted(ends, before + most_values - values, side="right"))
            end = min(end, start + most_rows - rows)
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
    """The number of values in the longest list of each row; 0 in a table without lists."""
    lengths = np.zeros(table.num_rows, dtype=np.int64)
    for field in table.schema:
        if pa.types.is_list(field.type):
            of_field = pc.fill_null(pc.list_value_length(table[field.name]), 0)
            lengths = np.maximum(lengths, of_field.to_numpy())
    return lengths


def delta_encodings(schema: pa.Schema, dictionary: Sequence[str]) -> dict[str, str]:
    """Encodings for columns of numbers and paths, which change little from row to row, except dictionary columns."""
    leaves = {
        f"{field.name}.list.element": field.type.value_type
        for field in schema
        if pa.types.is_list(field.type)
    }
    leaves |= {field.name: field.type for field in schema if field.name not in dictionary}
    numbers = {leaf: "DELTA_BINARY_PACKED" for leaf, kind in leaves.items() if kind in _NUMBERS}
    return numbers | ({"path": "DELTA_BYTE_ARRAY"} if "path" in schema.names else {})


def pieces_of_group(
    opened: pq.ParquetFile, group: int, most: int, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a row group, about `most` values of a column at a time; at least one row.

    Raises:
        OSError, pyarrow.ArrowException: the rows cannot be read.
    """
    metadata = opened.metadata.row_group(group)
    if not metadata.num_rows:
        return
    values = max(metadata.column(at).num_values for at in range(metadata.num_columns))
    rows = max(most * metadata.num_rows // max(values, 1), 1)
    for batch in opened.iter_batches(min(rows, metadata.num_rows), [group], columns):
        yield pa.Table.from_batches([batch])
