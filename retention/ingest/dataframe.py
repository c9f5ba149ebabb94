"""Appending Spark DataFrames and streaming queries to a stream or topic, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from retention.context.context import OpenedStream
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.labels import labelled, on_stream
from retention.dialects.column_mapping import ColumnMapping
from retention.ingest.append import Appended, appending, refuse_synced
from retention.ingest.idempotency import BatchIdentity, MicroBatch
from retention.planners.scratch import new_scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from retention.engines.spark.append import SortedRows
    from retention.layout.stored_blocks import StoredBlock

NO_MAPPING = ColumnMapping()
_log = logging.getLogger(__name__)


def is_spark_frame(given: object) -> TypeGuard[DataFrame]:
    """Whether a value is a Spark DataFrame, classic or Spark Connect, tested without loading Spark."""
    return hasattr(given, "sparkSession")


@on_stream
@labelled(step="append rows")
def append_frame(
    opened: OpenedStream,
    frame: DataFrame,
    identity: BatchIdentity | Callable[[], BatchIdentity] | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> Appended:
    """Append the rows of a DataFrame as one commit; Spark tasks write the files, this process commits them.

    In a stream sequences follow the order of the columns that `source_columns.mapped` adds for it, then that of
    `ts_ns`, subject, headers and payload, whatever the frame's partitions; the broker's rules of publishing (limits,
    duplicates, the stream's subjects) do not apply; `publish` applies them. Of a topic, batches, times, ids, sizes and
    refusals are those of publishing (docs/semantics/topics.md).

    Args:
        opened: the stream or topic; it is created if it does not exist.
        frame: for a stream `subject` and `payload` (binary or string), and if it has them `headers` (a header block as
            binary, a map, or an array of pairs) and `ts_ns` (bigint) or `time` (timestamp), by default now. For a topic
            `payload`, and if it has them `partition` (a whole number) or `key` (binary or string), `id` (string),
            `headers` (as they are stored, binary) and `origin_ts_ns` (bigint). Its session is used and not changed.
        identity: makes the append exactly once; a function is called for it after all rows are read and before the
            commit, and an exception from it ends the append.
        times: the instants that a row may give.

    Raises:
        UsageError: a column is missing or of another type, a row cannot be a message, its time is refused, or the
            frame's session was stopped.
        RefusedError: a topic's server would refuse a row.
        BusyError: the append lease is held, or other writers kept committing first.
        VerificationError: the staged files differ from what was to be written; nothing was committed.
    """
    from retention.dialects.arriving_rows import ArrivingRows
    from retention.engines.spark.append import sorted_frame
    from retention.engines.spark.engine import SparkEngine
    from retention.engines.spark.session import refuse_stopped

    refuse_synced(opened.config)
    refuse_stopped(frame.sparkSession)
    engine = SparkEngine(frame.sparkSession)
    with closing(new_scratch(opened, engine)) as scratch:
        arriving = ArrivingRows(opened.dialect, opened.clock(), times)
        rows = sorted_frame(engine, frame, arriving, scratch.location)
        return _append(opened, rows, identity() if callable(identity) else identity)


@on_stream
@labelled(step="append rows")
def append_blocks(
    opened: OpenedStream, blocks: Sequence[StoredBlock], directory: str, batch: MicroBatch
) -> Appended:
    """Append the rows that the tasks of a streaming query wrote to blocks; this process writes and commits the files.

    Args:
        opened: the stream or topic; it is created if it does not exist.
        blocks: the blocks of all tasks, in any order.
        directory: the directory for files of merged blocks.
        batch: makes the append exactly once.

    Raises:
        UsageError: a row cannot be a message, or too many blocks overlap.
        RefusedError, BusyError, VerificationError: as `append_frame`.
    """
    from retention.engines.local import LocalEngine
    from retention.engines.spark.append import rows_of_tasks

    refuse_synced(opened.config)
    rows = rows_of_tasks(LocalEngine(), opened.dialect, blocks, directory)
    return _append(opened, rows, batch)


def _append(opened: OpenedStream, rows: SortedRows, identity: BatchIdentity | None) -> Appended:
    with appending(opened, identity) as append:
        for attempt in append.attempts_at_end():
            end = attempt.end
            layer = opened.dialect.layer(end.tail, end.turn, opened.clock())
            append.commit(rows.stage(attempt.staging, layer))
    return append.done


def append_mapped(
    opened: OpenedStream,
    frame: DataFrame,
    mapping: ColumnMapping,
    identity: BatchIdentity | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> Appended:
    """Append the rows of a DataFrame, as `append_frame`, by a mapping of its columns.

    Raises:
        UsageError: as `append_frame`; or an expression is not valid in the frame.
        RefusedError, BusyError, VerificationError: as `append_frame`.
    """
    from retention.engines.spark.session import refuse_stopped
    from retention.engines.spark.source_columns import mapped

    refuse_stopped(frame.sparkSession)
    rows = mapped(frame, mapping, opened.dialect, "the frame")
    done = append_frame(opened, rows.frame, identity, times)
    return replace(done, order_by=rows.order_by, left_out=rows.left_out)


def streaming_sink(
    opened: OpenedStream,
    writer: str,
    mapping: ColumnMapping = NO_MAPPING,
    times: AcceptedTimes = ALL_TIMES,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` of a Structured Streaming query: each micro-batch is appended exactly once.

    The first batch logs a warning about columns that no message contains.

    Args:
        opened: the stream or topic.
        writer: the query's name in the stream; one name per checkpoint, because batches are identified by the query's
            numbers: any batch but the query's next or last one fails the query.
        mapping: how the query's rows map to messages.
        times: the instants that a row may give.
    """
    known: set[str] = set()

    def append_batch(frame: DataFrame, batch: int) -> None:
        done = append_mapped(opened, frame, mapping, micro_batch(frame, writer, batch), times)
        left_out = [name for name in done.left_out if name not in known]
        known.update(left_out)
        if left_out:
            _log.warning(
                "%s: left out of the messages of %s: %s; payload='all' includes them, or select the columns to keep",
                opened.name,
                writer,
                ", ".join(left_out),
            )

    return append_batch


def micro_batch(frame: DataFrame, writer: str, batch: int) -> MicroBatch:
    """The identity that makes a micro-batch exactly once; call it while the streaming query delivers the batch.

    Raises:
        UsageError: the frame's session was stopped.
    """
    from retention.engines.spark.connect import streaming_query
    from retention.engines.spark.session import refuse_stopped

    refuse_stopped(frame.sparkSession)
    return MicroBatch(writer, batch, query=streaming_query(frame.sparkSession))
