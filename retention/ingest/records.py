"""Appending records to a stream or topic in this process: what Spark's tasks append of the same rows, without Spark."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.labels import labelled, on_stream
from retention.core.message_rows import complete_rows
from retention.core.row_order import in_order
from retention.dialects.jetstream import refuse_malformed
from retention.formats.iggy.lines import parse_sent
from retention.formats.iggy.messages import decimals
from retention.formats.jsonl import Line, parse_messages
from retention.ingest.append import Appended, append_rows
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.topics.publish import publish_sent


@on_stream
@labelled(step="append rows")
def append_records(
    opened: OpenedStream,
    records: Iterable[Line],
    identity: BatchIdentity | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> Appended:
    """Append records, or lines, as one commit, in the order that `ingest.dataframe.append_frame` gives rows.

    All of them are held in memory.

    Args:
        opened: the stream or topic; it is created if it does not exist.
        records: see `formats.jsonl`, of a topic `formats.iggy.lines`; read to their end before it is touched.
        identity: makes the append exactly once.
        times: the instants that a record may give.

    Raises:
        UsageError: a record is no message; it is named by its number.
        RefusedError: a topic's server would refuse a message.
        BusyError: the append lease is held, or rivals kept committing first.
        VerificationError: the staged files do not hold what was to be written; nothing was committed.
    """
    if opened.config.topic is not None:
        sent = parse_sent(records, topic_of(opened).name, opened.clock(), times=times)
        return publish_sent(opened, _sent_in_order(sent), identity).appended
    rows = in_order(parse_messages(records, opened.clock(), times=times), opened.dialect.order)
    refuse_malformed(rows)
    return append_rows(opened, [complete_rows(rows, opened.config.storage)], identity)


def _sent_in_order(sent: pa.Table) -> pa.Table:
    """Messages of shape `SENT` in the order of time, then id (none first, then as texts), headers and payload."""
    halves = np.stack([sent[name].to_numpy() for name in ("id_low", "id_high")], axis=1)
    given = pa.array((halves != 0).any(axis=1))
    ids = pc.if_else(given, decimals(halves), pa.scalar(None, pa.string()))
    ordered = in_order(sent.append_column("id", ids), ("origin_ts_ns", "id", "headers", "payload"))
    return ordered.drop_columns("id")
