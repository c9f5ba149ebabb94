"""Files of blocks: arriving rows, sorted and packed, with the narrow columns that numbering needs.

A merge of overlapping blocks writes only the places of their rows; their data files take the rows from these blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, pairwise
from operator import attrgetter

import numpy as np
import pyarrow as pa

from retention.core.row_order import (
    KEY_BEFORE_ALL,
    in_order,
    is_in_order,
    key_at,
    rows_before,
    sorted_places,
)
from retention.core.spans import Array
from retention.dialects.dialect import Dialect
from retention.dialects.numbering import BlockRows
from retention.layout.stored_blocks import BlockMerge, StoredBlock
from retention.storage import files, scratch_files
from retention.storage.parallel import in_threads

RUN_BYTES = 64 << 20
"""Bytes of rows sorted at a time."""
BLOCK_BYTES = 256 << 10, 4 << 20
"""Minimum and maximum bytes of a block, where rows and gaps allow."""
LEAST_BLOCKS = 16
"""The minimum number of blocks per sorted run, if they are not too small; ranges are cut at first
rows of blocks."""
_GAPS = 32
"""A block ends if the gap to the next row exceeds 1/32 of the range of its sorted run."""


def write_blocks(
    location: str, batches: Iterable[pa.RecordBatch], dialect: Dialect
) -> list[StoredBlock]:
    """Write rows into a file, in sorted runs; nothing is written if there are none.

    Args:
        location: the file; it has no other writer.
        batches: rows with the columns `dialect.written`.
        dialect: the log's dialect.

    Raises:
        StorageError: the storage failed.
    """
    blocks: list[StoredBlock] = []
    with ExitStack() as stack:
        sink = None
        for rows in _runs(batches, dialect.order):
            sink = sink or stack.enter_context(scratch_files.create(location))
            ordered = in_order(rows, dialect.order)
            pack = partial(_pack_rows, sink, location, ordered)
            blocks += _written(sink, location, ordered, np.arange(len(ordered)), dialect, pack)
    return blocks


def merge_blocks(location: str, merge: BlockMerge, dialect: Dialect) -> list[StoredBlock]:
    """Write the order of the rows of a range into a file; the rows stay where they are.

    Raises:
        StorageError: the storage failed.
    """
    rows = _rows_of_merge(merge, dialect.order)
    places = sorted_places(rows, dialect.order)
    with scratch_files.create(location) as sink:
        pack = partial(_pack_places, sink, places)
        blocks = _written(sink, location, rows, places, dialect, pack)
    return [replace(block, merge=merge) for block in blocks]


def rows_of(blocks: Iterable[StoredBlock], order: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of each block; adjacent blocks of one merge read its rows once.

    Raises:
        FileNotFoundError, StorageError: they cannot be read.
    """
    for merge, inside in groupby(blocks, attrgetter("merge")):
        if merge is None:
            yield from map(_rows, inside)
        else:
            yield from _rows_by_place(_rows_of_merge(merge, order).combine_chunks(), inside)


def narrow_of(block: StoredBlock) -> BlockRows:
    """`Dialect.laid_by`, `Dialect.sizes` and `Dialect.also_narrow` of each row of a block.

    Raises:
        FileNotFoundError, StorageError: they cannot be read.
    """
    packed = scratch_files.read_range(block.location, block.offset, block.narrow)
    return tuple(np.frombuffer(packed, np.int64).reshape(-1, block.rows))


def _runs(batches: Iterable[pa.RecordBatch], order: Sequence[str]) -> Iterator[pa.Table]:
    """Runs of rows to sort together.

    A run ends where sorted rows restart from a lower value, as at the next file of a partition.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    rises, high = True, KEY_BEFORE_ALL
    for piece in chain.from_iterable(map(_pieces, batches)):
        rows = pa.Table.from_batches([piece])
        rises_inside = (rises or size >= RUN_BYTES) and is_in_order(rows, order)
        begins_anew = rises and rises_inside and key_at(rows, order, 0) < high
        if size >= RUN_BYTES or (begins_anew and size >= BLOCK_BYTES[1]):
            yield pa.Table.from_batches(held)
            held, size, rises, high = [], 0, True, KEY_BEFORE_ALL
        rises = rises and rises_inside and key_at(rows, order, 0) >= high
        high = key_at(rows, order, piece.num_rows - 1) if rises else high
        held.append(piece)
        size += piece.nbytes
    if held:
        yield pa.Table.from_batches(held)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, batch.num_rows * RUN_BYTES // max(batch.nbytes, 1))
    for begin in range(0, batch.num_rows, step):
        yield batch.slice(begin, step)


def _ends(laid_by: Array, sizes: Array, *, rises: bool) -> Sequence[int]:
    """The bounds of blocks in sorted rows: where a block is full, and, if `laid_by` rises, at large gaps."""
    least, most = BLOCK_BYTES
    ends = np.cumsum(sizes)
    room = min(max(int(ends[-1]) // LEAST_BLOCKS, least), most)
    full = np.searchsorted(ends, np.arange(room, int(ends[-1]) + 1, room))
    bounds = {0, len(sizes), *full.tolist()}
    if rises:
        gap = max(1, (int(laid_by[-1]) - int(laid_by[0])) // _GAPS)
        # Unsigned, because a difference may exceed 63 bits.
        gaps = np.diff(laid_by.view(np.uint64)) > np.uint64(gap)
        bounds.update((np.flatnonzero(gaps) + 1).tolist())
    return sorted(bounds)


def _rows_of_merge(merge: BlockMerge, order: Sequence[str]) -> pa.Table:
    """The rows of a range, those of each block in order."""
    threads = files.read_parallelism(merge.blocks[0].location)
    parts = in_threads(partial(_rows_of_range, merge, order), merge.blocks, threads)
    return pa.concat_tables(part for part in parts if part.num_rows)


def _rows_of_range(merge: BlockMerge, order: Sequence[str], block: StoredBlock) -> pa.Table:
    rows = _rows(block)
    begin = rows_before(rows, order, merge.low) if block.low < merge.low else 0
    end = rows.num_rows
    if merge.end is not None and block.high >= merge.end:
        end = rows_before(rows, order, merge.end)
    return rows.slice(begin, end - begin)


def _rows_by_place(rows: pa.Table, blocks: Iterable[StoredBlock]) -> Iterator[pa.Table]:
    for block in blocks:
        yield rows.take(pa.array(np.frombuffer(_content(block), np.int64)))


def _rows(block: StoredBlock) -> pa.Table:
    """The rows of a block that has its own."""
    with pa.ipc.open_stream(_content(block)) as stream:
        return stream.read_all()


def _content(block: StoredBlock) -> pa.Buffer:
    """The bytes of a block without its narrow columns."""
    begin = block.offset + block.narrow
    return scratch_files.read_range(block.location, begin, block.length - block.narrow)


def _written(
    sink: scratch_files.Sink,
    location: str,
    rows: pa.Table,
    places: Array,
    dialect: Dialect,
    pack: Callable[[int, int], None],
) -> list[StoredBlock]:
    """Append the rows at sorted places to a file, in blocks; `pack` writes the content of one of them."""
    columns = (dialect.laid_by, *dialect.also_narrow)
    laid_by, *others = (rows[name].to_numpy()[places] for name in columns)
    sizes = dialect.sizes(rows)[places]
    blocks = []
    rises = dialect.order[0] == dialect.laid_by
    for begin, end in pairwise(_ends(laid_by, sizes, rises=rises)):
        narrow = np.stack([column[begin:end] for column in (laid_by, sizes, *others)])
        offset = sink.tell()
        sink.write(pa.py_buffer(narrow))
        pack(begin, end)
        blocks.append(
            StoredBlock(
                location=location,
                offset=offset,
                narrow=narrow.nbytes,
                length=sink.tell() - offset,
                rows=end - begin,
                bytes=int(narrow[1].sum()),
                first=int(narrow[0, 0]),
                last=int(narrow[0].max()),
                low=key_at(rows, dialect.order, int(places[begin])),
                high=key_at(rows, dialect.order, int(places[end - 1])),
            )
        )
    return blocks


def _pack_rows(
    sink: scratch_files.Sink, location: str, rows: pa.Table, begin: int, end: int
) -> None:
    with pa.ipc.new_stream(sink, rows.schema, options=scratch_files.options(location)) as stream:
        stream.write_table(rows.slice(begin, end - begin))


def _pack_places(sink: scratch_files.Sink, places: Array, begin: int, end: int) -> None:
    sink.write(pa.py_buffer(places[begin:end]))
