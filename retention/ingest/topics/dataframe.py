"""Appending Spark DataFrames to a topic, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.context.topic_tail import TopicPosition, locate_topic
from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.datafile.segment_writer import Staging
from retention.errors import RefusedError, UsageError
from retention.formats.iggy.messages import halves_of
from retention.formats.iggy.user_headers import parse
from retention.ingest.append import Appended, Draft, append_drafts
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.topics.batches import TopicAttempt, draft_of, rows_of
from retention.ingest.topics.validate import first_refusal
from retention.layout.partition_tails import TopicEnds
from retention.layout.topic_segment_roll import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append_frame_to_topic(
    opened: OpenedStream, frame: DataFrame, identity: BatchIdentity | None = None
) -> Appended:
    """Append the rows of a DataFrame as one commit; Spark tasks write the files, this process commits them.

    Batches, times, ids, sizes and refusals are those of publishing (docs/semantics/topics.md).

    Args:
        opened: the topic; it is created if it does not exist.
        frame: `payload` (binary or string); if it has them, `partition` (a whole number) or `key` (binary or string),
            `id` (string), `headers` (as they are stored, binary) and `origin_ts_ns` (bigint). Its session is used,
            and left as it is.
        identity: makes the append exactly once.

    Raises:
        UsageError: a column is missing or of another type, or a row cannot be a message; or this is no topic.
        RefusedError: a server would refuse a row.
        BusyError: the append lease is held, or rivals kept committing first.
        VerificationError: the staged files do not hold what was to be written; nothing was committed.
    """
    from retention.engines.spark.append_topic import TopicFrame

    policy = topic_of(opened).policy()
    completing = partial(completed_rows, opened.name, policy)
    with TopicFrame(frame, policy, opened.clock()) as rows:

        def stage(position: TopicPosition, staging: Staging) -> Draft:
            tails = {number: position.tail(number) for number in range(policy.partitions)}
            now_us = opened.clock() // MICROSECOND
            before = TopicEnds(tails.__getitem__, position.turn, policy, now_us)
            pieces, ends = rows.lay(before)
            return draft_of(position, ends, rows.write(pieces, staging, completing))

        return append_drafts(opened, lambda: TopicAttempt(locate_topic(opened), stage), identity)


def completed_rows(
    topic: str,
    policy: TopicPolicy,
    rows: pa.Table,
    partition: int,
    batches: Sequence[Batch],
    sizes: Array,
) -> pa.Table:
    """Rows of a DataFrame as they are stored, shape `FILE_COLUMNS`.

    Raises:
        UsageError: one cannot be a message.
        RefusedError: a server would refuse one.
    """
    refusal = first_refusal(rows, policy)
    if refusal is not None:
        raise RefusedError(
            f"topic {topic} refuses a row (server error {refusal.code}, {refusal.error}): {refusal.reason}; nothing "
            "was appended; correct or leave out such rows"
        )
    low, high = _checked_ids(topic, rows)
    sent = rows.append_column("id_low", low).append_column("id_high", high)
    blocks = sent["headers"]
    empty = pc.equal(pc.binary_length(blocks), 0)
    at = sent.column_names.index("headers")
    sent = sent.set_column(at, "headers", pc.if_else(empty, pa.scalar(None, pa.binary()), blocks))
    return rows_of(sent, (topic, partition), batches, sizes)


def _checked_ids(topic: str, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The halves of the ids of rows that can be messages, 0 of those without."""
    try:
        if pc.any(pc.and_(pc.is_valid(rows["partition"]), pc.is_valid(rows["key"]))).as_py():
            raise ValueError("a partition and a key exclude each other")  # noqa: TRY301
        if pc.any(pc.less(rows["origin_ts_ns"], 0)).as_py():
            raise ValueError("an origin_ts_ns is not before 1970")  # noqa: TRY301
        for block in pc.unique(rows["headers"]).drop_null().to_pylist():
            parse(block)
        return halves_of(pc.fill_null(rows["id"], "0"))
    except ValueError as error:
        raise UsageError(
            f"topic {topic} cannot take a row: {error}; nothing was appended; correct or leave out such rows"
        ) from error
