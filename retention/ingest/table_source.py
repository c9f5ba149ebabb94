"""The import of rows without sequences from a source: each row exactly once, even if it is requested again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.dialects import iggy, jetstream
from retention.dialects.column_mapping import ColumnMapping
from retention.dialects.dialect import Dialect
from retention.errors import UsageError
from retention.ingest.sources.backlog import SourceReader
from retention.ingest.sources.directory import Wishes
from retention.ingest.sources.look import DELTA, FORMATS, InspectedSource, known_place
from retention.ingest.sources.taking import Taking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from retention.engines.spark.source_columns import MappedRows

COLUMNS_HELP = f"{', '.join(jetstream.COLUMNS)}; of a topic {', '.join(iggy.COLUMNS)}"


@dataclass(frozen=True)
class TableSource:
    """A table or directory; each of its rows is taken once."""

    location: str
    format: str = DELTA
    """One of `FORMATS`."""
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    """The mapping of its columns to those of the log."""
    times: AcceptedTimes = ALL_TIMES
    """The instants that its rows may give."""
    take: frozenset[str] = frozenset()
    """Ambiguous files or versions whose rows all count as new."""
    skip: frozenset[str] = frozenset()
    """Ambiguous files or versions whose rows all count as taken."""

    @property
    def wishes(self) -> Wishes:
        """The user's decisions."""
        return Wishes(self.take, self.skip)


@dataclass(frozen=True)
class Ingested:
    """The result of taking a source's new rows."""

    stream: str
    source: str
    batches: int
    messages: int
    bytes: int
    notes: tuple[str, ...] = ()
    """A sentence for each notice to the user."""
    order_by: tuple[str, ...] = ()
    """The source's columns that order messages; empty: by time, or there was no row."""
    left_out: tuple[str, ...] = ()
    """The source's columns that contribute nothing to any message."""
    choices: tuple[str, ...] = ()
    """A sentence for each default choice about the columns."""


def ingest(
    opened: OpenedStream, source: TableSource, spark: SparkSession | None = None
) -> Ingested:
    """Append the rows of a source that were not taken before, in one or several commits.

    The position in the source is a record beside the stream, named by the commit that adds the rows, so an interrupted
    run repeats nothing. If there are no new rows, Spark is not started.

    Args:
        opened: the stream or topic.
        source: the source.
        spark: the session that reads it; None: the active one, or a new one if rows must be read.

    Raises:
        UsageError: the source cannot be opened, a column is missing or of another type, or a row cannot be a message.
        RefusedError: the new rows cannot be determined; nothing was read.
        DamagedError: a file, the source's log or a record cannot be read.
        BusyError: the append lease is held, other writers kept committing first, or a file changed while it was read.
    """
    source.mapping.check(opened.dialect)
    if source.format not in FORMATS:
        raise UsageError(
            f"{source.format}: no such format of a source; there are {', '.join(FORMATS)}"
        )
    source = replace(source, location=known_place(opened, source.location))
    mapped: list[MappedRows] = []
    with _reading(opened, source, spark, mapped) as reader:
        taking = Taking(opened, source.location, reader)
        known = taking.so_far()
        look = InspectedSource(opened, source.location, source.format, source.wishes, reader)
        backlog = look.backlog(known)
        new = taking.take(known, backlog)
    return Ingested(
        opened.name,
        source.location,
        sum(appended.messages > 0 for appended in new),
        sum(appended.messages for appended in new),
        sum(appended.bytes for appended in new),
        backlog.notes,
        mapped[0].order_by if mapped else (),
        mapped[0].left_out if mapped else (),
        mapped[0].choices if mapped else (),
    )


@contextmanager
def _reading(
    opened: OpenedStream, source: TableSource, spark: SparkSession | None, mapped: list[MappedRows]
) -> Iterator[Callable[[], SourceReader]]:
    """A function that returns a reader during the block, and starts Spark on its first call.

    The mapping of each batch's columns is added to `mapped`.
    """
    with ExitStack() as stack:

        @cache
        def reader() -> SourceReader:
            from retention.engines.spark.session import refuse_stopped, session
            from retention.ingest.sources.spark_reader import SparkReader

            running = spark or stack.enter_context(session("ingest"))
            refuse_stopped(running)
            messages = partial(_messages, source, opened.dialect, mapped)
            return SparkReader(running, opened, messages, source.times)

        yield reader


def _messages(
    source: TableSource, dialect: Dialect, known: list[MappedRows], rows: DataFrame
) -> DataFrame:
    """Rows of a source as the stream stores them."""
    from retention.engines.spark.source_columns import mapped, refuse_unfit, refuse_untimed

    if not source.times.may_be_missing:
        refuse_untimed(rows, source.mapping, source.location)
    messages = mapped(rows, source.mapping, dialect, source.location)
    refuse_unfit(messages.frame, dialect, source.location)
    known.append(messages)
    return messages.frame
