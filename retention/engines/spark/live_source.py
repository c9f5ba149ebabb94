"""A Python data source of Spark: a live stream read by ranges of sequences, each by a task with its own connection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from retention.engines.spark.ddl import arrow_of, ddl_of
from retention.engines.spark.live_offsets import LiveState, Reach, Span
from retention.engines.spark.task_code import code_digest, refuse_other_code
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.engines.spark.live_stream_reader import LiveStreamReader

_BATCH_BYTES = 32 << 20
_ADMISSION = "pyspark.sql.streaming.datasource"
"""The module of Spark with the limits of a trigger, new in 4.2."""


class LiveStream(Protocol):
    """A stream of a live server by its address; it travels to tasks and holds no connection and no secret."""

    def columns(self) -> pa.Schema:
        """The names and types of its messages."""
        ...

    def state(self) -> LiveState:
        """Its state now."""
        ...

    def tables(self, span: Span) -> Iterator[pa.Table]:
        """The messages of a span that the server holds, ascending.

        Raises:
            RefusedError: the stream was made anew; or it lost messages before they were read, and the span fails then.
        """
        ...


@dataclass(frozen=True)
class LiveReading:
    """A stream and the sequences of it that the options of a query name."""

    stream: LiveStream
    reach: Reach
    end: int | None
    """The last sequence that a batch query wants; None: that of the stream when Spark plans."""
    partitions: int
    """The most tasks of a batch."""
    batch_messages: int | None
    """The most sequences of a trigger; None: all."""


class SpanPartition(InputPartition):
    """The span of one task; none of its own means no rows."""

    def __init__(self, span: Span | None) -> None:
        """The span is read by its task."""
        super().__init__(None)
        self.span = span


class LiveSource(DataSource):
    """A data source with one live stream by its options."""

    @abstractmethod
    def reading(self, *, is_streaming: bool) -> LiveReading:
        """The stream and the range of sequences that the options name."""

    @abstractmethod
    def all_columns(self) -> pa.Schema:
        """The columns of every stream."""

    def schema(self) -> str:
        """The columns of messages."""
        return ddl_of(self.all_columns())

    def reader(self, schema: StructType) -> LiveReader:
        """A reader of the requested columns of the messages that are there when Spark plans."""
        return LiveReader(self.reading(is_streaming=False), arrow_of(schema))

    def streamReader(self, schema: StructType) -> LiveStreamReader:  # noqa: N802  (Spark's)
        """A reader of the requested columns for a streaming query.

        Raises:
            UsageError: this Spark has no limits of a trigger.
        """
        if find_spec(_ADMISSION) is None:
            raise UsageError(
                f'readStream.format("{self.name()}") needs Spark 4.2 or later, and this is {pyspark.__version__}; '
                "use spark.read with `start` and `end`"
            )
        from retention.engines.spark.live_stream_reader import LiveStreamReader

        return LiveStreamReader(self.reading(is_streaming=True), arrow_of(schema))


class SpanReading:
    """The requested columns of spans, read by tasks with the code of the planning process."""

    def __init__(self, stream: LiveStream, columns: pa.Schema) -> None:
        """Read these columns.

        Raises:
            UsageError: the stream has no such column, or it has another type.
        """
        _refuse_others(columns, stream.columns())
        self._stream = stream
        self._columns = columns
        self._digest = code_digest()

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task.

        Raises:
            OtherCodeError: this process has another version of this package than the planning one.
            RefusedError: the stream was made anew, or lost messages of the span.
        """
        refuse_other_code(self._digest)
        assert isinstance(partition, SpanPartition)  # noqa: S101  (Spark returns what was planned)
        if partition.span is None:
            return
        for table in self._stream.tables(partition.span):
            rows = table.select(self._columns.names).cast(self._columns)
            yield from rows.to_batches(max_chunksize=_batch_rows(rows))


class LiveReader(DataSourceReader):
    """A reader of the messages that a stream holds when Spark plans; those removed since are left out.

    It takes no filters from Spark (`pushFilters`): docs/decisions/0054-spark-data-source-filters.md has the reason.
    """

    def __init__(self, reading: LiveReading, columns: pa.Schema) -> None:
        """Read these columns."""
        self._reading = reading
        self._rows = SpanReading(reading.stream, columns)

    def partitions(self) -> Sequence[InputPartition]:
        """The spans of the stream at this moment; a single empty one if there are no sequences."""
        reading, state = self._reading, self._reading.stream.state()
        first = max(reading.reach.begin, state.first_seq)
        last = state.last_seq if reading.end is None else min(reading.end, state.last_seq)
        if first > last:
            return partitions_of(None, 1)
        span = Span(first, last, state.created, fails_on_loss=False)
        return partitions_of(span, reading.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a span."""
        return self._rows.batches(partition)


def partitions_of(span: Span | None, count: int) -> list[InputPartition]:
    """The tasks of a span; at least one, as Spark calls no reader without."""
    return [SpanPartition(share) for share in (span.shares(count) if span else [None])]


def _refuse_others(wanted: pa.Schema, there: pa.Schema) -> None:
    for column in wanted:
        if column.name not in there.names:
            raise UsageError(
                f"messages have no column {column.name}; they have {', '.join(there.names)}"
            )
        kind = there.field(column.name).type
        if kind != column.type:
            raise UsageError(
                f"the column {column.name} of messages is {kind}, not {column.type}; request it as that, or leave the "
                "schema out"
            )


def _batch_rows(table: pa.Table) -> int:
    """The rows of a batch of about `_BATCH_BYTES`."""
    return max(1, _BATCH_BYTES * table.num_rows // max(table.nbytes, _BATCH_BYTES))
