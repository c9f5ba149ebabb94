"""The batches of a streaming query on a live stream: offsets, limits of a trigger, and the end of `availableNow`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from retention.engines.spark.live_offsets import (
    LiveState,
    Offset,
    first_offset,
    latest_offset,
    span_of,
)
from retention.engines.spark.live_source import LiveReading, SpanReading, partitions_of


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader with offsets `{created, next}`; the checkpoint is the only position.

    Spark repeats a batch after a failure without asking for its end again, so each step compares `created`.
    """

    def __init__(self, reading: LiveReading, columns: pa.Schema) -> None:
        """Read these columns."""
        self._reading = reading
        self._rows = SpanReading(reading.stream, columns)
        self._end: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's, as below)
        """The offset of a query without a checkpoint."""
        return first_offset(self._state(), self._reading.reach).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a trigger; its rows are sequences here, so gaps make a batch smaller."""
        limit = self._reading.batch_messages
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Freeze the end of the query."""
        state = self._state()
        self._end = Offset(state.created, state.last_seq + 1)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; equal to `start` if there is nothing new."""
        state = self._state()
        if self._end is not None and self._end.created == state.created:
            state = replace(state, last_seq=min(state.last_seq, self._end.next - 1))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return latest_offset(Offset.of(start), state, self._reading.reach, most).as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The spans of a batch."""
        reading = self._reading
        span = span_of(Offset.of(start), Offset.of(end), self._state(), reading.reach)
        return partitions_of(span, reading.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a span."""
        return self._rows.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the server keeps no position of a query."""

    def _state(self) -> LiveState:
        return self._reading.stream.state()
