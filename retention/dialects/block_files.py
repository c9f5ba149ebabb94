"""Files of blocks: arriving rows, sorted and packed, with the narrow columns that numbering needs.

A merge of overlapping blocks writes only the places of their rows; their data files take the rows from these blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, pairwise
from operator import attrgetter

import numpy as np
import pyarrow as pa

from retention.core.row_order import (
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
"""Bytes of rows sorted at a time, if they do not come in order."""
BLOCK_BYTES = 256 << 10, 4 << 20
"""Minimum and maximum bytes of a block, where rows and gaps allow."""
LEAST_BLOCKS = 16
"""The minimum number of blocks of rows that were sorted, if they are not too small; ranges are cut at
first rows of blocks."""


def write_blocks(
    location: str, batches: Iterable[pa.RecordBatch], dialect: Dialect
) -> list[StoredBlock]:
    """Write rows into a file: as they come while they are in order, or else sorted in runs; no rows make no file.

    Args:
        location: the file; it has no other writer.
        batches: rows with the columns `dialect.written`.
        dialect: the log's dialect.

    Raises:
        StorageError: the storage failed.
    """
    blocks: list[StoredBlock] = []
    with ExitStack() as stack:
        file = None
        for rows, rises in _runs(batches, dialect.order):
            file = file or stack.enter_context(_created(location, dialect))
            blocks += file.write_ordered(rows) if rises else file.write_sorted(rows)
    return blocks


def merge_blocks(location: str, merge: BlockMerge, dialect: Dialect) -> list[StoredBlock]:
    """Write the order of the rows of a range into a file; the rows stay where they are.

    Raises:
        StorageError: the storage failed.
    """
    rows = _rows_of_merge(merge, dialect.order)
    with _created(location, dialect) as file:
        blocks = file.write_places(rows)
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


def _runs(
    batches: Iterable[pa.RecordBatch], order: Sequence[str]
) -> Iterator[tuple[pa.Table, bool]]:
    """Rows to write together, and whether they are in order, so that they need no sort.

    Of rows in order, no more than a block is held. If they restart from a lower value after at least a block, as at
    the next file of a partition, their rest is no part of what follows.
    """
    held: list[pa.RecordBatch] = []
    size = risen = 0
    rises = True
    last: list[pa.RecordBatch] = []
    for piece in chain.from_iterable(map(_pieces, batches)):
        may_rise = rises or size >= RUN_BYTES
        follows = may_rise and _is_in_order([*last, piece], order)
        restarts = may_rise and not follows and bool(last) and _is_in_order([piece], order)
        is_full = size >= (BLOCK_BYTES[1] if rises else RUN_BYTES)
        if held and (is_full or (restarts and risen >= BLOCK_BYTES[1])):
            yield pa.Table.from_batches(held), rises
            held, size = [], 0
        rises = (follows and rises) or ((follows or restarts) and not held)
        risen = piece.nbytes + (risen if follows else 0) if rises else 0
        last = [piece.slice(piece.num_rows - 1)] if rises else []
        held.append(piece)
        size += piece.nbytes
    if held:
        yield pa.Table.from_batches(held), rises


def _is_in_order(batches: Sequence[pa.RecordBatch], order: Sequence[str]) -> bool:
    return is_in_order(pa.Table.from_batches(batches), order)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, batch.num_rows * RUN_BYTES // max(batch.nbytes, 1))
    for begin in range(0, batch.num_rows, step):
        yield batch.slice(begin, step)


def _ends(laid_by: Array, sizes: Array, wanted: int, *, rises: bool) -> Sequence[int]:
    """The bounds of blocks in sorted rows: those of equal blocks, and, if `laid_by` rises, large gaps.

    Args:
        laid_by: of each row.
        sizes: of each row, in bytes.
        wanted: the number of equal blocks, if they are neither too small nor too large; a gap is large from half of
            the range of such a block on.
        rises: whether `laid_by` ascends.
    """
    least, most = BLOCK_BYTES
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    number = max(-(-total // most), min(wanted, total // least))
    full = np.searchsorted(ends, total * np.arange(1, number) / number)
    bounds = {0, len(sizes), *full.tolist()}
    if rises:
        gap = max(1, (int(laid_by[-1]) - int(laid_by[0])) // (2 * wanted))
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


@dataclass(frozen=True)
class _BlockFile:
    """A file of blocks, open for writing."""

    sink: scratch_files.Sink
    location: str
    dialect: Dialect

    def write_ordered(self, rows: pa.Table) -> list[StoredBlock]:
        """Append rows that are in order."""
        return self._write(rows, np.arange(len(rows)), 1, partial(self._pack, rows.slice))

    def write_sorted(self, rows: pa.Table) -> list[StoredBlock]:
        """Append rows in order; only those of one block are copied at a time."""
        # With several chunks, each block would concatenate all of them first.
        whole = rows.combine_chunks()
        places = sorted_places(whole, self.dialect.order)

        def taken(begin: int, count: int) -> pa.Table:
            return whole.take(pa.array(places[begin:][:count]))

        return self._write(whole, places, LEAST_BLOCKS, partial(self._pack, taken))

    def write_places(self, rows: pa.Table) -> list[StoredBlock]:
        """Append only the places of rows, in order."""
        places = sorted_places(rows, self.dialect.order)

        def pack(begin: int, count: int) -> None:
            self.sink.write(pa.py_buffer(places[begin:][:count]))

        return self._write(rows, places, LEAST_BLOCKS, pack)

    def _pack(self, part: Callable[[int, int], pa.Table], begin: int, count: int) -> None:
        rows, options = part(begin, count), scratch_files.options(self.location)
        with pa.ipc.new_stream(self.sink, rows.schema, options=options) as stream:
            stream.write_table(rows)

    def _write(
        self, rows: pa.Table, places: Array, wanted: int, pack: Callable[[int, int], None]
    ) -> list[StoredBlock]:
        """Append the rows at sorted places, in a wanted number of blocks; `pack` writes the content of one of them."""
        dialect, sink = self.dialect, self.sink
        columns = (dialect.laid_by, *dialect.also_narrow)
        laid_by, *others = (rows[name].to_numpy()[places] for name in columns)
        sizes = dialect.sizes(rows)[places]
        blocks = []
        rises = dialect.order[0] == dialect.laid_by
        for begin, end in pairwise(_ends(laid_by, sizes, wanted, rises=rises)):
            narrow = np.stack([column[begin:end] for column in (laid_by, sizes, *others)])
            offset = sink.tell()
            sink.write(pa.py_buffer(narrow))
            pack(begin, end - begin)
            blocks.append(
                StoredBlock(
                    location=self.location,
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


@contextmanager
def _created(location: str, dialect: Dialect) -> Iterator[_BlockFile]:
    with scratch_files.create(location) as sink:
        yield _BlockFile(sink, location, dialect)
