"""Appending Spark DataFrames and streaming queries to a stream, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.context.stream_tail import Position
from retention.datafile.segment_writer import Staged, Staging
from retention.ingest.append import Appended, append, refuse_topic_of
from retention.ingest.idempotency import BatchIdentity, MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append_frame(
    opened: OpenedStream,
    frame: DataFrame,
    identity: BatchIdentity | None = None,
) -> Appended:
    """Append the rows of a DataFrame as one commit; Spark tasks write the files, this process commits them.

    Sequences follow the order of `ts_ns`, then subject, headers and payload, whatever the frame's partitions. The
    broker's rules of publishing (limits, duplicates, the stream's subjects) are not asked: that is `publish`.

    Args:
        opened: the stream; it is created if it does not exist.
        frame: `subject` and `payload` (binary or string); if it has them, `headers` (a header block as binary, a map,
            or an array of pairs) and `ts_ns` (bigint) or `time` (timestamp), by default now. Its session is used, and
            left as it is.
        identity: makes the append exactly once.

    Raises:
        UsageError: a column is missing or of another type, or a row cannot be a message.
        BusyError: the append lease is held, or rivals kept committing first.
        VerificationError: the staged files do not hold what was to be written; nothing was committed.
    """
    from retention.engines.spark.append import SortedFrame

    refuse_topic_of(opened.config)
    with SortedFrame(frame, opened.config.storage, opened.clock()) as rows:

        def stage(position: Position, staging: Staging) -> Staged:
            return rows.stage(staging, position.active, position.rule, position.next_seq)

        return append(opened, stage, identity)


Append = Callable[[OpenedStream, "DataFrame", BatchIdentity], Appended]
"""How a DataFrame is appended: to a stream, or to a topic."""


def streaming_sink(
    opened: OpenedStream, writer: str, append: Append = append_frame
) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` of a Structured Streaming query takes: each micro-batch is appended exactly once.

    Args:
        opened: the stream or topic.
        writer: the query's name in the stream; one name for one checkpoint, since the query's batch numbers count: a
            batch that is not the query's next or last one fails the query.
        append: how micro-batches are appended to it.
    """

    def append_batch(frame: DataFrame, batch: int) -> None:
        append(opened, frame, micro_batch(frame, writer, batch))

    return append_batch


def micro_batch(frame: DataFrame, writer: str, batch: int) -> MicroBatch:
    """What makes a micro-batch of a streaming query exactly once, asked for while the query hands it over."""
    from retention.engines.spark.session import streaming_query

    return MicroBatch(writer, batch, query=streaming_query(frame))
