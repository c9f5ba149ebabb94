"""A Python data source of Spark: views read by tasks in Arrow batches, and batches of streaming queries appended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from retention.core.inventory import DataFile
from retention.core.message_filter import MessageFilter
from retention.datafile.file_messages import messages_in
from retention.engines.spark.ddl import arrow_of, ddl_of
from retention.engines.spark.task_code import code_digest, refuse_other_code
from retention.errors import UsageError
from retention.storage.tables import decode_stream, encode_stream

if TYPE_CHECKING:
    from retention.dialects.arriving_rows import ArrivingRows
    from retention.engines.spark.stream_writer import BlockWriter
    from retention.layout.stored_blocks import StoredBlock

_BATCH_BYTES = 32 << 20
_PART_ROWS = 65_536
_WRITE = 'writeStream.format("retention")'


class TaskShare(InputPartition):
    """The share of one task: everything that it needs, without a session or a warehouse."""

    def __init__(self) -> None:
        """No value: a part is read by its own method."""
        super().__init__(None)

    @abstractmethod
    def tables(self, columns: pa.Schema) -> Iterator[pa.Table]:
        """The rows, with the names and types of `columns`."""


@dataclass
class FilesPart(TaskShare):
    """Data files of a snapshot, read by the task."""

    files: tuple[DataFile, ...]
    wanted: MessageFilter

    def tables(self, columns: pa.Schema) -> Iterator[pa.Table]:
        """The wanted messages of the files."""
        for file in self.files:
            for rows in messages_in(file, columns.names, self.wanted):
                yield rows.cast(columns)


@dataclass
class RowsPart(TaskShare):
    """Rows that planning has already made, as an Arrow stream."""

    content: bytes

    def tables(self, columns: pa.Schema) -> Iterator[pa.Table]:
        """The rows."""
        yield decode_stream(self.content).cast(columns)


class SourceView(Protocol):
    """A table of a warehouse that the source shows."""

    def columns(self) -> pa.Schema:
        """Its names and types."""
        ...

    def parts(self, columns: pa.Schema) -> list[TaskShare]:
        """Its shares for tasks at this moment, to be read with these columns, which may be fewer than all."""
        ...


class BatchTarget(Protocol):
    """A log to which a streaming query appends; only the process that opened it has it."""

    @property
    def arriving(self) -> ArrivingRows:
        """The completion of rows that arrive at this moment."""
        ...

    @property
    def directory(self) -> str:
        """The parent of the directories of queries for files of blocks; all tasks can reach it."""
        ...

    def append(self, blocks: Sequence[StoredBlock], directory: str, query: str, batch: int) -> None:
        """Append the blocks of all tasks as one commit, unless this batch of the query was committed.

        Args:
            blocks: in any order.
            directory: the directory for files of merged blocks.
            query: the id of the query, from its checkpoint.
            batch: the number of the batch.
        """
        ...


class ViewSource(DataSource):
    """A data source with one view or one target by its options."""

    @abstractmethod
    def view(self) -> SourceView:
        """The view, opened where Spark plans."""

    @abstractmethod
    def target(self) -> BatchTarget:
        """The target, opened where Spark plans or commits."""

    def schema(self) -> str:
        """The columns of the view."""
        return ddl_of(self.view().columns())

    def reader(self, schema: StructType) -> ViewReader:
        """A reader of the requested columns."""
        return ViewReader(self, arrow_of(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> BlockWriter:  # noqa: FBT001, N802  (Spark's)
        """A writer of the batches of a streaming query.

        Raises:
            UsageError: this Spark has no such writer, the query replaces its results, or a column is not stored as it
                is.
        """
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            raise UsageError(
                f"{_WRITE} needs Spark 4.1 or later; use foreachBatch(stream.sink(…)) with Spark {pyspark.__version__}"
            )
        if overwrite:
            raise UsageError(
                f'{_WRITE} appends, and the query replaces its results; give it .outputMode("append")'
            )
        from retention.engines.spark.columns import refuse_unstored
        from retention.engines.spark.stream_writer import BlockWriter

        target = self.target()
        refuse_unstored(schema, target.arriving.dialect)
        return BlockWriter(target)


class ViewReader(DataSourceReader):
    """A reader of a view: makes parts where Spark plans, reads them in tasks.

    It takes no filters from Spark (`pushFilters`): docs/decisions/0054-spark-data-source-filters.md has the reason.
    """

    def __init__(self, source: ViewSource, columns: pa.Schema) -> None:
        """Read these columns, by tasks with the code of this process."""
        self._source = source
        self._columns = columns
        self._digest = code_digest()

    def partitions(self) -> list[InputPartition]:
        """The parts of the view at this moment; a single empty one if there are no rows."""
        parts = self._source.view().parts(self._columns)
        return [*(parts or rows_parts(self._columns.empty_table()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part.

        Raises:
            OtherCodeError: this process has another version of this package than the planning one.
        """
        refuse_other_code(self._digest)
        assert isinstance(partition, TaskShare)  # noqa: S101  (Spark returns what `partitions` made)
        for table in partition.tables(self._columns):
            yield from table.to_batches(max_chunksize=_batch_rows(table))


def rows_parts(table: pa.Table) -> list[TaskShare]:
    """The parts of a table in memory; at least one."""
    starts = range(0, max(table.num_rows, 1), _PART_ROWS)
    return [RowsPart(encode_stream(table.slice(start, _PART_ROWS))) for start in starts]


def _batch_rows(table: pa.Table) -> int:
    """The rows of a batch of about `_BATCH_BYTES`."""
    return max(1, _BATCH_BYTES * table.num_rows // max(table.nbytes, _BATCH_BYTES))
