"""The staging of sorted rows after a log's last messages: tasks write the files and return only statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame

from retention.core.inventory import DataFile
from retention.datafile.deadline_writer import write_by_deadline
from retention.datafile.segment_writer import Staged, Staging, verified_stats
from retention.dialects.arriving_rows import ArrivingRows
from retention.dialects.block_files import narrow_of, rows_of
from retention.dialects.dialect import Dialect, Layer, RowBlock, Share
from retention.dialects.numbering import BlockRows, lay
from retention.engine_port import Engine
from retention.engines.spark.columns import given_columns, order_fields
from retention.engines.spark.engine import SparkEngine
from retention.engines.spark.failures import spark_failures
from retention.engines.spark.sorted_blocks import merged, sorted_blocks
from retention.engines.spark.source import RowSource
from retention.errors import UsageError
from retention.layout.stored_blocks import StoredBlock, arranged, is_bearable, parts_of
from retention.schemas.files import FileStats
from retention.storage import files
from retention.storage.parallel import in_threads

_PROCESSES = 1
"""The number of processes that share the rows of a streaming query's commit."""


@dataclass(frozen=True)
class PlacedShare:
    """A share, and its target files."""

    share: Share
    files: tuple[DataFile, ...]

    def attempt(self) -> Self:
        """The share with file names for one attempt."""
        return replace(self, files=tuple(file.of_attempt() for file in self.files))


@dataclass(frozen=True)
class WriteTask:
    """Adjacent blocks, and the shares into which they are split."""

    blocks: tuple[StoredBlock, ...]
    placed: tuple[PlacedShare, ...]

    def attempt(self) -> Self:
        """The task with file names for one attempt."""
        return replace(self, placed=tuple(placed.attempt() for placed in self.placed))


class SortedRows:
    """Rows in the order of their sequences, kept in blocks between attempts to commit them.

    This process numbers them from the totals of blocks. It reads 16 bytes a row, only of blocks in which a segment or
    batch ends.

    Args:
        engine: runs the tasks that write files.
        dialect: the log's dialect, with all columns that order the rows.
        parts: adjacent blocks in order, in one part for each task.
    """

    def __init__(
        self, engine: Engine, dialect: Dialect, parts: Sequence[Sequence[StoredBlock]]
    ) -> None:
        self._engine = engine
        self._dialect = dialect
        self._parts = parts

    def stage(self, staging: Staging, layer: Layer) -> Staged:
        """Write the rows after a log's ends, to one file for each segment and part or several by deadline.

        Batches and segments begin exactly as if messages were appended one by one.

        Args:
            staging: the source of new files.
            layer: the dialect's layer, at those ends.

        Raises:
            UsageError, RefusedError: a row cannot be a message.
            VerificationError: a file differs from the rows written to it.
        """
        blocks = {
            RowBlock(part, number, block.rows, block.bytes, block.first, block.last): block
            for part, inside in enumerate(self._parts)
            for number, block in enumerate(inside)
        }
        laid = lay(layer, [*blocks], partial(_narrow, blocks))
        stats = write_shares(self._engine, self._dialect, self._parts, laid.shares(), staging)
        return Staged.ending_at(stats, laid.ends)


def write_shares(
    engine: Engine,
    dialect: Dialect,
    parts: Sequence[Sequence[StoredBlock]],
    shares: Iterable[Share],
    staging: Staging,
) -> list[FileStats]:
    """Write the rows of blocks, each part of them by a task; returns rows of `FILE_STATS`, in order.

    Args:
        engine: runs the tasks.
        dialect: completes the rows.
        parts: adjacent blocks in order, in one part for each task.
        shares: the shares into which the rows are split, in order.
        staging: the source of new files.

    Raises:
        UsageError, RefusedError: a row cannot be a message.
        VerificationError: a file differs from the rows written to it.
    """
    placed: list[list[PlacedShare]] = [[] for _ in parts]
    for share in shares:
        placed[share.part].append(PlacedShare(share, staging.new(share.base, share.partition)))
    tasks = [
        WriteTask(tuple(blocks), tuple(inside))
        for blocks, inside in zip(parts, placed, strict=True)
    ]
    lengths = [sum(block.bytes for block in task.blocks) for task in tasks]
    written = engine.map(partial(_write_part, dialect), tasks, lengths)
    return sorted(chain.from_iterable(written), key=lambda row: (row["partition"], row["min_seq"]))


def sorted_frame(
    engine: SparkEngine, frame: DataFrame, arriving_rows: ArrivingRows, directory: str
) -> SortedRows:
    """The rows of a DataFrame, sorted by tasks.

    Args:
        engine: runs tasks in the frame's session.
        frame: the caller's frame.
        arriving_rows: completes the rows in tasks.
        directory: the directory for files of blocks; all tasks can reach it.

    Raises:
        UsageError: a column is missing or of another type, or the time of a row is refused.
        RetentionError, OSError: as `sorted_blocks`.
    """
    with spark_failures():
        given = given_columns(frame, arriving_rows.dialect)
        dialect = arriving_rows.dialect.ordered_by(order_fields(given))
        arriving = replace(arriving_rows, dialect=dialect)
        blocks = sorted_blocks(engine, given, arriving, directory)
        return SortedRows(engine, dialect, parts_of(blocks, engine.parallelism()))


def rows_of_tasks(
    engine: Engine, dialect: Dialect, blocks: Sequence[StoredBlock], directory: str
) -> SortedRows:
    """The rows of blocks that the tasks of a streaming query wrote, sorted by this process.

    Args:
        engine: runs tasks in this process.
        dialect: the log's dialect.
        blocks: the blocks of all tasks, in any order.
        directory: the directory for files of merged blocks.

    Raises:
        UsageError: too many blocks overlap.
        StorageError: the storage failed.
    """
    entries = arranged(blocks)
    if not is_bearable(entries):
        raise UsageError(
            f"the {sum(block.rows for block in blocks)} rows of this batch are too far from the order of "
            f"{', '.join(dialect.order)} to be sorted by one process; nothing was appended; limit the batches of the "
            "query, or use foreachBatch(stream.sink(…)), which lets Spark sort them"
        )
    ordered = merged(engine, entries, directory, dialect)
    return SortedRows(engine, dialect, parts_of(ordered, _PROCESSES))


def _narrow(
    stored: Mapping[RowBlock, StoredBlock], blocks: Sequence[RowBlock]
) -> Mapping[RowBlock, BlockRows]:
    """The times or addresses, and the sizes, of the rows of blocks."""
    places = [stored[block] for block in blocks]
    threads = files.read_parallelism(places[0].location)
    return dict(zip(blocks, in_threads(narrow_of, places, threads), strict=True))


def _write_part(dialect: Dialect, task: WriteTask) -> list[FileStats]:
    source = RowSource(rows_of(task.blocks, dialect.order))
    return [row for placed in task.placed for row in _write_share(source, dialect, placed)]


def _write_share(source: RowSource, dialect: Dialect, placed: PlacedShare) -> list[FileStats]:
    written = write_by_deadline(placed.files, _completed(source, dialect, placed.share))
    return verified_stats(written, placed.share.wrote)


def _completed(source: RowSource, dialect: Dialect, share: Share) -> Iterator[pa.Table]:
    """The rows of a share in their stored form, some at a time."""
    at = 0
    for rows in source.take(share.messages):
        yield dialect.completed(rows, share, at)
        at += rows.num_rows
