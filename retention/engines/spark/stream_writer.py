"""The batches of a streaming query by the data source: tasks write sorted blocks, the commit appends them once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from retention.engines.spark.arrow_batches import of_plain_types
from retention.engines.spark.columns import addressed
from retention.engines.spark.data_source import BatchTarget
from retention.engines.spark.sorted_blocks import block_writer, blocks_of
from retention.engines.spark.task_code import code_digest, refuse_other_code
from retention.errors import RetentionError
from retention.storage import files
from retention.storage.scratch_files import ScratchDirectory

_UNKNOWN_ATTEMPTS = sys.maxsize
"""Tasks have no access to the number of attempts, so the last failure of a storage reaches Spark as an exception."""


@dataclass(frozen=True)
class TaskOutcome(WriterCommitMessage):
    """The result of a task, and the query that it worked for."""

    query: str
    """The query's id, from its checkpoint."""
    result: Any
    """The outcome of `block_writer`."""


class BlockWriter(DataSourceStreamArrowWriter):
    """A writer to a log: Spark plans it for each batch, executes it in tasks, and makes it again to commit."""

    def __init__(self, target: BatchTarget) -> None:
        """Write to a target, by tasks with the code of this process."""
        self._target: BatchTarget | None = target
        self._arriving = target.arriving
        self._directory = target.directory
        self._digest = code_digest()

    def __getstate__(self) -> dict[str, Any]:
        """The state for tasks, which open no warehouse."""
        return vars(self) | {"_target": None}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcome:
        """Write the rows of one partition to a file of blocks, in the query's directory.

        Raises:
            OtherCodeError: this process has another version of this package than the planning one.
            OSError: the storage failed, and a retry by Spark may succeed.
        """
        refuse_other_code(self._digest)
        query = _query()
        directory = files.join(self._directory, query)
        files.make_directory(directory)
        write = block_writer(self._arriving, directory, _UNKNOWN_ATTEMPTS)
        dialect = self._arriving.dialect
        rows = (addressed(of_plain_types(batch), dialect) for batch in iterator)
        return TaskOutcome(query, write(rows))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's)
        """Append the blocks of a batch, unless it was committed, and delete the query's directory.

        Raises:
            RetentionError, OSError: a task or the append raised it, or the result of a task is missing.
        """
        outcomes = _outcomes(messages)
        if len(outcomes) < len(messages):
            raise RetentionError(
                f"Spark commits batch {batchId} without the results of all tasks; nothing was appended; start the "
                "query again, which repeats the batch"
            )
        [query] = {outcome.query for outcome in outcomes}
        with closing(ScratchDirectory(files.join(self._directory, query))) as scratch:
            left = blocks_of(outcome.result for outcome in outcomes)
            blocks = [*chain.from_iterable(written for _, written in left)]
            assert self._target is not None  # noqa: S101  (Spark commits where it made the writer)
            self._target.append(blocks, scratch.location, query, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the directory of the query, if a task wrote to it."""
        for query in {outcome.query for outcome in _outcomes(messages)}:
            ScratchDirectory(files.join(self._directory, query)).close()


def _outcomes(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    return [message for message in messages if isinstance(message, TaskOutcome)]


def _query() -> str:
    """The id of the query that runs this task."""
    task = TaskContext.get()
    query = None if task is None else task.getLocalProperty("sql.streaming.queryId")
    assert query is not None  # noqa: S101  (Spark executes writers in tasks of streaming queries)
    return query
