"""Appending records to a stream or topic in this process: the same result as Spark's tasks, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.labels import labelled, on_stream
from retention.core.message_rows import complete_rows
from retention.core.row_order import in_order, ordered_slices
from retention.dialects.dialect import ORDER, Dialect
from retention.dialects.jetstream import refuse_malformed
from retention.errors import UsageError
from retention.formats.iggy.lines import parse_sent
from retention.formats.iggy.messages import decimals
from retention.formats.jsonl import Line, parse_messages
from retention.formats.records import is_missing, is_record
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
    order_by: Sequence[str] | None = None,
) -> Appended:
    """Append records, or lines, as one commit, in the order that `ingest.dataframe.append_mapped` gives rows.

    All of them are kept in memory.

    Args:
        opened: the stream or topic; it is created if it does not exist.
        records: see `formats.jsonl`, for a topic `formats.iggy.lines`; read to their end before the log is touched.
        identity: makes the append exactly once.
        times: the instants that a record may give.
        order_by: keys of the records that order messages, before their times.

    Raises:
        UsageError: a record is not a message, lacks a key of `order_by`, or has a null payload; the error gives its
            number.
        RefusedError: a topic's server would refuse a message.
        BusyError: the append lease is held, or other writers kept committing first.
        VerificationError: the staged files differ from what was to be written; nothing was committed.
    """
    given = _Records(records, tuple(order_by or ()), opened.dialect)
    if opened.config.topic is not None:
        sent = parse_sent(given, topic_of(opened).name, opened.clock(), times=times)
        ordered = _sent_in_order(given.with_keys(sent), given.keys)
        sent_done = publish_sent(opened, ordered, identity).appended
        return replace(sent_done, order_by=given.order_by)
    rows = given.with_keys(parse_messages(given, opened.clock(), times=times))
    refuse_malformed(rows)
    ordered = ordered_slices(rows, (*given.keys, *opened.dialect.order))
    del rows
    completed = (complete_rows(part, opened.config.storage) for part in ordered)
    done = append_rows(opened, completed, identity)
    return replace(done, order_by=given.order_by)


class _Records:
    """Records without their ordering keys; iteration remembers the values of those keys.

    Args:
        records: as `append_records` takes them.
        order_by: keys that every record must have.
        dialect: the log's.
    """

    def __init__(
        self, records: Iterable[Line], order_by: tuple[str, ...], dialect: Dialect
    ) -> None:
        self.order_by = order_by
        self.keys = [f"{ORDER}{number}" for number in range(len(order_by))]
        self._records = records
        self._dialect = dialect
        self._values: list[tuple[object, ...]] = []

    def __iter__(self) -> Iterator[Line]:
        for number, record in enumerate(self._records, start=1):
            try:
                yield self._message(record)
            except ValueError as error:
                raise UsageError(
                    f"line {number}: {error}; nothing was appended; correct it and append again"
                ) from error

    def _message(self, record: Line) -> Line:
        if not is_record(record):
            if self.order_by:
                raise ValueError("order_by needs records, and this is text")
            return record
        if is_missing(record.get("payload", b"")) and not self._dialect.is_topic:
            raise ValueError(
                "payload is null, which is not a message; leave it out, or make it empty"
            )
        if not self.order_by:
            return record
        if unknown := [name for name in self.order_by if name not in record]:
            raise ValueError(f"it has no {', '.join(unknown)}, which order_by names")
        given = (record[name] for name in self.order_by)
        self._values.append(tuple(None if is_missing(value) else value for value in given))
        known = {*self._dialect.columns, "data", "data_b64", "key_b64", "headers_b64"}
        apart = {name for name in self.order_by if name not in known}
        return {name: value for name, value in record.items() if name not in apart}

    def with_keys(self, rows: pa.Table) -> pa.Table:
        """Rows made from the records, with the values of their ordering keys.

        Raises:
            UsageError: the values of a key are of several types.
        """
        places = (rows["line"].to_numpy() - 1).tolist()
        for at, key in enumerate(self.keys):
            try:
                values = pa.array([self._values[place][at] for place in places])
            except (pa.ArrowException, TypeError) as error:
                raise UsageError(
                    f"order_by {self.order_by[at]}: its values cannot be compared with each other ({error}); nothing "
                    "was appended; give them one type"
                ) from error
            rows = rows.append_column(key, values)
        return rows


def _sent_in_order(sent: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Messages of shape `SENT` ordered by keys, then time, id (none first, then as text), headers and payload."""
    halves = np.stack([sent[name].to_numpy() for name in ("id_low", "id_high")], axis=1)
    given = pa.array((halves != 0).any(axis=1))
    ids = pc.if_else(given, decimals(halves), pa.scalar(None, pa.string()))
    order = (*keys, "origin_ts_ns", "id", "headers", "payload")
    return in_order(sent.append_column("id", ids), order).drop_columns(["id", *keys])
