"""Narrow rows in parts of a shuffle: integers are differences from the least, in as few bytes as hold them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.integer_sort import argsort
from retention.core.spans import Array

_ABOUT = b"about"
_SMALL = (pa.uint8(), pa.uint16(), pa.uint32())


@dataclass(frozen=True)
class SmallRows:
    """Narrow rows, ready to be dealt in parts."""

    rows: pa.Table
    """The columns that parts have."""
    least: dict[str, int | None]
    """Each column → the number to add to its values, or that is its value where `rows` lacks it; None: none."""

    @classmethod
    def of(cls, rows: pa.Table) -> SmallRows:
        """Narrow rows, whose integers take fewer bytes."""
        small: dict[str, pa.ChunkedArray] = {}
        least: dict[str, int | None] = {}
        for name in rows.schema.names:
            values, least[name] = _small(rows[name])
            if values is not None:
                small[name] = values
        return cls(pa.table(small), least)

    def dealt(self, numbers: Array, aside: object) -> Iterator[tuple[int, bytes]]:
        """The rows in a part for each number, in their order; `aside` is with the first part, even without rows.

        Args:
            numbers: the part of each row, from 0 on; shape (rows,).
            aside: JSON values for `rows_of_parts`.
        """
        rows = self.rows.take(pa.array(argsort(numbers))) if self.rows.num_columns else self.rows
        counts = np.bincount(numbers.astype(np.int64), minlength=1)
        ends = np.cumsum(counts).tolist()
        for number, (start, end) in enumerate(pairwise([0, *ends])):
            if end > start or not number:
                yield number, self._packed(rows.slice(start, end - start), end - start, aside)
                aside = None

    def _packed(self, rows: pa.Table, count: int, aside: object) -> bytes:
        about = json.dumps([count, self.least, aside])
        described = rows.replace_schema_metadata({_ABOUT: about})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, described.schema, options=_options(rows.schema)) as out:
            out.write_table(described)
        return sink.getvalue().to_pybytes()


def rows_of_parts(contents: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, list[Any]]:
    """The narrow rows of parts, in their order, and what is with them.

    Args:
        contents: the parts.
        schema: the columns and types of the narrow rows.
    """
    tables = [pa.ipc.open_stream(content).read_all() for content in contents]
    about = [json.loads(table.schema.metadata[_ABOUT]) for table in tables]
    counts = [count for count, _, _ in about]
    columns = [
        _restored(
            [table[field.name] if field.name in table.schema.names else None for table in tables],
            [least[field.name] for _, least, _ in about],
            counts,
            field.type,
        )
        for field in schema
    ]
    return pa.table(columns, schema=schema), [aside for _, _, aside in about if aside is not None]


def _options(schema: pa.Schema) -> pa.ipc.IpcWriteOptions:
    """The compression of other columns than small integers, which it costs more than it saves."""
    is_small = all(pa.types.is_integer(kind) for kind in schema.types)
    return pa.ipc.IpcWriteOptions(compression=None if is_small else "lz4")


def _small(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray | None, int | None]:
    """The differences from the least value, and it; None if all are 0. The values and None if they stay as they are."""
    if not pa.types.is_integer(values.type) or values.null_count:
        return values, None
    if not len(values):
        return None, 0
    least, most = pc.min_max(values).as_py().values()
    if least == most:
        return None, least
    for kind in _SMALL:
        if most - least < 1 << kind.bit_width:
            return pc.subtract(values.cast(pa.int64()), least).cast(kind), least
    return values, None


def _restored(
    parts: Sequence[pa.ChunkedArray | None],
    least: Sequence[int | None],
    counts: Sequence[int],
    kind: pa.DataType,
) -> pa.Array | pa.ChunkedArray:
    """The values of a column in all parts."""
    if any(part is not None and number is None for part, number in zip(parts, least, strict=True)):
        chunks = [
            chunk
            for part, number, count in zip(parts, least, counts, strict=True)
            for chunk in _plain(part, number, count, kind).chunks
        ]
        return pa.chunked_array(chunks, kind)
    values = np.repeat(np.array(least, np.int64), counts)
    ends = np.cumsum(counts).tolist()
    for part, (start, end) in zip(parts, pairwise([0, *ends]), strict=True):
        if part is not None:
            values[start:end] += part.to_numpy()
    return pa.array(values).cast(kind)


def _plain(
    part: pa.ChunkedArray | None, least: int | None, count: int, kind: pa.DataType
) -> pa.ChunkedArray:
    if part is None:
        return pa.chunked_array([np.full(count, least)]).cast(kind)
    if least is None:
        return part
    return pc.add(part.cast(pa.int64()), least).cast(kind)
