"""Blocks of a sorted frame: rows that crossed to Python once, packed, beside the totals that numbering needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from retention.core.spans import Array
from retention.dialects.dialect import Block, Dialect

BLOCK = (
    "place bigint, rows bigint, bytes bigint, first bigint, last bigint, narrow binary, rest binary"
)
"""One row a block: `place` has the partition of the frame and the number of the block in it; then the totals of
`Block`; `narrow` is what a layer needs of each row, and `rest` the rows."""
TOTALS = ("place", "rows", "bytes", "first", "last")
_NUMBER_BITS = 33
_MOST_BYTES = 32 << 20


def packer(
    dialect: Dialect,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that packs the rows of one partition of a sorted frame into blocks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        pieces = (piece for batch in batches for piece in _pieces(batch))
        for number, rows in enumerate(pieces):
            yield _packed(rows, dialect, place_of(part, number))

    return run


def place_of(part: int, number: int) -> int:
    """The place of a block: rising as the blocks of a sorted frame do."""
    return (part << _NUMBER_BITS) + number


def part_of(place: int) -> int:
    """The partition of the frame in which a place is."""
    return place >> _NUMBER_BITS


def blocks_of(totals: pa.Table) -> list[Block]:
    """The blocks of a sorted frame, in order, from their columns `TOTALS`."""
    rows = totals.sort_by("place").select(TOTALS).to_pylist()
    return [
        Block(part_of(row["place"]), row["place"] & ((1 << _NUMBER_BITS) - 1), *counts)
        for row in rows
        for counts in [[row[name] for name in TOTALS[1:]]]
    ]


def narrow_of(packed: bytes) -> tuple[Array, Array]:
    """`Dialect.laid_by` and `Dialect.sizes` of each row of a block."""
    laid_by, sizes = np.frombuffer(packed, np.int64).reshape(2, -1)
    return laid_by, sizes


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of blocks, each with the partition of the frame; `batches` has `place` and `rest`."""
    for batch in batches:
        for place, rest in zip(batch["place"].to_pylist(), batch["rest"], strict=True):
            with pa.ipc.open_stream(rest.as_buffer()) as packed:
                yield part_of(place), packed.read_next_batch()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about `_MOST_BYTES`, so that none outgrows what one value can hold."""
    step = max(1, batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1))
    for begin in range(0, batch.num_rows, step):
        yield batch.slice(begin, step)


def _packed(rows: pa.RecordBatch, dialect: Dialect, place: int) -> pa.RecordBatch:
    table = pa.Table.from_batches([rows])
    laid_by, sizes = table[dialect.laid_by].to_numpy(), dialect.sizes(table)
    totals = [place, len(sizes), int(sizes.sum()), int(laid_by[0]), int(laid_by[-1])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    narrow = np.concatenate([laid_by, sizes]).astype(np.int64, copy=False)
    columns = [
        *(pa.array([total], pa.int64()) for total in totals),
        _value(pa.py_buffer(narrow)),
        _value(sink.getvalue()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*TOTALS, "narrow", "rest"])


def _value(content: pa.Buffer) -> pa.Array:
    """An array of one binary value, which is not copied."""
    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])
