"""The rows of a DataFrame sorted into sequence order; tasks write them to files of blocks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention.core.units import MICROSECOND
from retention.dialects.arriving_rows import TIME_US, ArrivingRows
from retention.dialects.block_files import merge_blocks, write_blocks
from retention.dialects.dialect import Dialect
from retention.engine_port import Engine
from retention.engines.local import LocalEngine
from retention.engines.spark import arrow_batches
from retention.engines.spark.attempts import CARRIED, attempts_of, outcome_of
from retention.engines.spark.columns import arriving
from retention.engines.spark.engine import SparkEngine
from retention.engines.spark.jobs import watched_jobs
from retention.engines.spark.task_code import map_in_arrow
from retention.layout.stored_blocks import BlockMerge, StoredBlock, arranged, is_bearable
from retention.storage import files, scratch_files

_FEW_ROWS = 4_000_000
"""The rows up to which this process sorts the keys of merges sooner than an engine begins."""
_OUTCOME = "outcome binary"
Act = Callable[[Iterator[pa.RecordBatch]], Any]
"""The work of a task on the rows of one partition; its result, or the error that ended it."""
_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Left = tuple[int, list[StoredBlock]]
"""The number of a frame's partition, and the blocks that its task wrote."""


def sorted_blocks(
    engine: SparkEngine, frame: DataFrame, arriving_rows: ArrivingRows, directory: str
) -> list[StoredBlock]:
    """Sort rows by `dialect.order`; the order does not depend on the frame's partitions.

    Spark computes the rows once, unsorted. If the blocks are in order, nothing else is needed. If some overlap, tasks
    merge them. If too many overlap, Spark computes the frame again and sorts it.

    Args:
        engine: runs tasks in the frame's session.
        frame: the result of `given_columns`.
        arriving_rows: completes the rows in tasks.
        directory: the directory for the files of blocks; all tasks can reach it.

    Returns:
        The blocks, in order.

    Raises:
        RetentionError, OSError: a task raised it.
        PySparkException, Py4JError: Spark failed.
        CancelledError: the jobs were cancelled.
    """
    dialect = arriving_rows.dialect
    write = block_writer(arriving_rows, directory, attempts_of(frame.sparkSession))
    as_they_come = partial(arriving, dialect=dialect)
    left = _left(frame, as_they_come, write)
    entries = arranged([*chain.from_iterable(blocks for _, blocks in left)])
    if not is_bearable(entries):
        left = _left(frame, partial(_sorted, arriving_rows=arriving_rows), write)
        return [block for _, blocks in sorted(left) for block in blocks]
    return merged(engine, entries, directory, dialect)


def merged(
    engine: Engine, entries: Sequence[StoredBlock | BlockMerge], directory: str, dialect: Dialect
) -> list[StoredBlock]:
    """Merge overlapping blocks in tasks of an engine, or a few blocks on a disk, of which only keys are read, here.

    Args:
        engine: runs the merges that read more.
        entries: the result of `arranged`.
        directory: the directory for the files of merged blocks.
        dialect: the log's dialect.

    Returns:
        The blocks, in order.
    """
    merges = [entry for entry in entries if isinstance(entry, BlockMerge)]
    merge = partial(_merged, directory, dialect)
    few = not files.is_remote(directory) and sum(task.rows for task in merges) <= _FEW_ROWS
    runner = LocalEngine() if few else engine
    results = iter(runner.map(merge, merges, [task.length for task in merges]))
    return [
        block
        for entry in entries
        for block in (next(results) if isinstance(entry, BlockMerge) else [entry])
    ]


def _sorted(given: DataFrame, arriving_rows: ArrivingRows) -> DataFrame:
    """The arriving rows, sorted; absent columns have the same value in all rows."""
    dialect = arriving_rows.dialect
    frame = arriving(given, dialect)
    keys = {name: F.col(name) for name in dialect.order if name in frame.columns}
    time = keys.get(dialect.timed_by)
    if TIME_US in frame.columns:
        time = F.col(TIME_US).cast("decimal(22, 0)") * MICROSECOND
    if time is not None:
        keys[dialect.timed_by] = F.coalesce(time, F.lit(arriving_rows.now_ns).cast("bigint"))
    return frame.sort(*[keys[name] for name in dialect.order if name in keys])


def _left(given: DataFrame, prepared: Callable[[DataFrame], DataFrame], write: Act) -> list[Left]:
    """Write the rows of a frame to blocks in tasks; if a long row is found, the frame is computed again."""
    session = given.sparkSession
    if arrow_batches.are_by_rows(session):
        try:
            frame = prepared(arrow_batches.shortened(given))
            return _outcomes(frame, _task(lambda rows: write(arrow_batches.refuse_long(rows))))
        except arrow_batches.LongRowError:
            arrow_batches.bound_bytes(session)
    return _outcomes(prepared(given), _task(write))


def _outcomes(frame: DataFrame, write: _Task) -> list[Left]:
    """The blocks that the task of each partition of a frame wrote.

    Raises:
        RetentionError, OSError: a task raised it.
    """
    with watched_jobs(frame.sparkSession):
        received = map_in_arrow(frame, write, _OUTCOME).toArrow()
    return blocks_of(pickle.loads(raw) for raw in received["outcome"].to_pylist())  # noqa: S301  (our own)


def blocks_of(outcomes: Iterable[Any]) -> list[Left]:
    """The blocks of the tasks that acts of `block_writer` gave.

    Raises:
        RetentionError, OSError: a task raised it.
    """
    left = [*outcomes]
    for outcome in left:
        if isinstance(outcome, CARRIED):
            raise outcome
    return left


def block_writer(arriving_rows: ArrivingRows, directory: str, attempts: int) -> Act:
    """The act that writes the rows of one partition; gives its number and their blocks, or the error that ended it.

    It fills in missing columns. A clock time in the frame's expressions would make Spark recompile them for every
    append.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Left:
        task = TaskContext.get()
        place = scratch_files.new_place(directory, "rows")
        return 0 if task is None else task.partitionId(), write_blocks(
            place, map(arriving_rows.filled, batches), arriving_rows.dialect
        )

    return lambda batches: outcome_of(partial(write, batches), attempts)


def _task(act: Act) -> _Task:
    """The task that returns the outcome of an act."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outcome = pickle.dumps(act(batches))
        yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], names=["outcome"])

    return run


def _merged(directory: str, dialect: Dialect, merge: BlockMerge) -> list[StoredBlock]:
    return merge_blocks(scratch_files.new_place(directory, "merged"), merge, dialect)
