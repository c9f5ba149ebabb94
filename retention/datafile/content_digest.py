"""The digest of messages: equal for equal rows in the same order, for any split into tables and files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from retention.schemas.messages import FILE_COLUMNS


class ContentDigest:
    """A running digest over all columns of messages, ascending by sequence."""

    def __init__(self) -> None:
        """Begin without messages."""
        self.messages = 0
        self._columns = [_ColumnDigest(field.type) for field in FILE_COLUMNS]

    def update(self, rows: pa.Table) -> None:
        """Add the next messages, shape `FILE_COLUMNS`."""
        for column, name in zip(self._columns, FILE_COLUMNS.names, strict=True):
            column.update(rows[name], self.messages)
        self.messages += rows.num_rows

    @property
    def value(self) -> str:
        """The number of messages and the digest of their content."""
        return f"{self.messages}-{xxhash.xxh3_128_hexdigest(b''.join(column.digest() for column in self._columns))}"


class _ColumnDigest:
    """A running digest of one column: nulls by row number, values, and the lengths of variable-length values."""

    def __init__(self, type_: pa.DataType) -> None:
        self._is_varying = pa.types.is_binary(type_) or pa.types.is_string(type_)
        self._nulls, self._lengths, self._values = (xxhash.xxh3_128() for _ in range(3))

    def update(self, column: pa.ChunkedArray, first_row: int) -> None:
        for chunk in column.chunks:
            values = chunk
            if chunk.null_count:
                self._nulls.update(_null_rows(chunk, first_row).data)
                values = pc.fill_null(chunk, b"" if self._is_varying else _zero(chunk.type))
            if self._is_varying:
                self._update_varying(values)
            else:
                self._values.update(np.ascontiguousarray(_as_numbers(values)).data)
            first_row += len(chunk)

    def _update_varying(self, chunk: pa.Array) -> None:
        if not len(chunk):
            return
        _, offsets, content = chunk.buffers()
        ends = np.frombuffer(offsets, np.int32, len(chunk) + 1, chunk.offset * 4)
        self._lengths.update(np.diff(ends).data)
        if ends[-1] > ends[0]:
            self._values.update(memoryview(content)[int(ends[0]) : int(ends[-1])])

    def digest(self) -> bytes:
        parts = (self._nulls, self._lengths, self._values)
        return b"".join(part.digest() for part in parts)


def _null_rows(chunk: pa.Array, first_row: int) -> np.ndarray:
    return np.flatnonzero(pc.is_null(chunk).to_numpy(zero_copy_only=False)) + first_row


def _zero(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.int64()).cast(type_)


def _as_numbers(chunk: pa.Array) -> np.ndarray:
    numbers = chunk.cast(pa.int64()) if pa.types.is_timestamp(chunk.type) else chunk
    return numbers.to_numpy(zero_copy_only=False)
