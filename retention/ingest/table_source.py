"""Taking rows without sequences out of a source, each of them once, however often that is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.subjects import name_of_path
from retention.dialects import iggy, jetstream
from retention.dialects.column_mapping import ColumnMapping
from retention.dialects.dialect import Dialect
from retention.errors import RefusedError, UsageError
from retention.ingest.sources.backlog import Backlog, SourceReader
from retention.ingest.sources.contents import Contents
from retention.ingest.sources.delta_log import DeltaLog
from retention.ingest.sources.delta_source import DeltaSource
from retention.ingest.sources.directory import SourceFile, Wishes
from retention.ingest.sources.directory_source import DirectorySource, converted
from retention.ingest.sources.positions import DeltaPosition, DirectoryPosition
from retention.ingest.sources.records import CUT as _CUT
from retention.ingest.sources.taking import WRITER, TakenSoFar, Taking
from retention.storage import files
from retention.storage.listing import list_files
from retention.storage.places import only_spark_reaches, place_of
from retention.storage.scratch_files import local_directory
from retention.stores.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from retention.engines.spark.source_columns import MappedRows

COLUMNS_HELP = f"{', '.join(jetstream.COLUMNS)}; of a topic {', '.join(iggy.COLUMNS)}"
FORMATS = ("delta", "parquet", "json", "csv", "orc")
DELTA = "delta"


@dataclass(frozen=True)
class Source:
    """A table or directory whose rows are taken, each once."""

    location: str
    format: str = DELTA
    """One of `FORMATS`."""
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    """The mapping of its columns to those of the log."""
    times: AcceptedTimes = ALL_TIMES
    """The instants that its rows may give."""
    take: frozenset[str] = frozenset()
    """Files or versions, of which it cannot be told what is new in them: all of their rows are."""
    skip: frozenset[str] = frozenset()
    """Such of which none is."""

    @property
    def wishes(self) -> Wishes:
        """The decisions of a person."""
        return Wishes(self.take, self.skip)


@dataclass(frozen=True)
class Ingested:
    """The numbers of what was new in the source."""

    stream: str
    source: str
    batches: int
    messages: int
    bytes: int
    notes: tuple[str, ...] = ()
    """A sentence for each thing that a person should know."""
    order_by: tuple[str, ...] = ()
    """The source's columns by which messages got their sequences; empty: by their times, or there was no row."""
    left_out: tuple[str, ...] = ()
    """The source's columns that no message has anything of."""


def ingest(opened: OpenedStream, source: Source, spark: SparkSession | None = None) -> Ingested:
    """Append the rows of a source that were not taken before, in one commit or a few.

    How far the source was taken is a record beside the stream, which the commit that adds the rows names, so that a
    run that was stopped half-way repeats nothing. Where nothing is new, Spark is not asked.

    Args:
        opened: the stream or topic.
        source: what is taken.
        spark: the session that reads it; None: the active one, or one that is started where rows have to be read.

    Raises:
        UsageError: the source cannot be opened, a column is missing or of another type, or a row cannot be a message.
        RefusedError: it cannot be told which rows are new; nothing was read.
        DamagedError: a file, the source's log or a record cannot be read.
        BusyError: the append lease is held, rivals kept committing first, or a file changed while it was read.
    """
    source.mapping.check(opened.dialect)
    if source.format not in FORMATS:
        raise UsageError(
            f"{source.format}: no such format of a source; there are {', '.join(FORMATS)}"
        )
    source = replace(source, location=_known_place(opened, source.location))
    mapped: list[MappedRows] = []
    with _reading(opened, source, spark, mapped) as reader:
        taking = Taking(opened, source.location, reader)
        standing = taking.standing()
        backlog = _backlog(source, standing, reader)
        new = taking.take(standing, backlog)
    return Ingested(
        opened.name,
        source.location,
        sum(appended.messages > 0 for appended in new),
        sum(appended.messages for appended in new),
        sum(appended.bytes for appended in new),
        (*backlog.notes, *(mapped[0].notes if mapped else ())),
        mapped[0].order_by if mapped else (),
        mapped[0].left_out if mapped else (),
    )


def _backlog(source: Source, standing: TakenSoFar, reader: Callable[[], SourceReader]) -> Backlog:
    """Look for rows that are to be taken; where an earlier release took some, go on from its record."""
    if source.format == DELTA:
        with _log_of(source, standing, reader) as log:
            table = DeltaSource(source.location, source.wishes, log)
            known = standing.position
            if standing.checkpoint is not None and standing.batch is not None:
                known = table.taken_until(*standing.checkpoint.taken_version(standing.batch))
            if not isinstance(known, DeltaPosition | None):
                raise _other_format(source, "a directory")
            backlog = table.backlog(known)
    else:
        is_ours = not only_spark_reaches(source.location)
        listing = _listed(source.location) if is_ours else reader().listing(source.location)
        contents = Contents(source.location, source.format, readable=is_ours)
        directory = DirectorySource(source.location, source.format, contents, source.wishes)
        known = standing.position
        if standing.checkpoint is not None and standing.batch is not None:
            taken = standing.checkpoint.taken_files(standing.batch)
            known = converted(source.location, source.format, listing, taken)
        if not isinstance(known, DirectoryPosition | None):
            raise _other_format(source, "a Delta table")
        backlog = directory.backlog(listing, known)
    if standing.checkpoint is not None and backlog.moved is None:
        backlog = replace(backlog, moved=known)
    return backlog


@contextmanager
def _log_of(
    source: Source, standing: TakenSoFar, reader: Callable[[], SourceReader]
) -> Iterator[DeltaLog]:
    """The log of a Delta table, or a copy of it where only Spark reaches that."""
    if not only_spark_reaches(source.location):
        yield DeltaLog(source.location)
        return
    known = standing.position
    with closing(local_directory()) as scratch:
        after = known.version if isinstance(known, DeltaPosition) else None
        reader().log(source.location, after, scratch.location)
        yield DeltaLog(scratch.location)


def _listed(location: str) -> list[SourceFile]:
    try:
        return [
            SourceFile(file.path, file.length, file.modified_ns, file.etag, file.inode)
            for file in list_files(location)
        ]
    except FileNotFoundError as error:
        raise UsageError(
            f"{location}: there is no such directory; nothing was read; name the directory of a table and, with "
            "--source-format, what it is"
        ) from error


@contextmanager
def _reading(
    opened: OpenedStream, source: Source, spark: SparkSession | None, mapped: list[MappedRows]
) -> Iterator[Callable[[], SourceReader]]:
    """A function that gives a reader during the block, and starts Spark the first time that it is called.

    What becomes of the columns of each batch is added to `mapped`.
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
    source: Source, dialect: Dialect, known: list[MappedRows], rows: DataFrame
) -> DataFrame:
    """Rows of a source as the stream takes them."""
    from retention.engines.spark.source_columns import mapped, refuse_unfit, refuse_untimed

    if not source.times.may_be_missing:
        refuse_untimed(rows, source.mapping, source.location)
    messages = mapped(rows, source.mapping, dialect, source.location)
    refuse_unfit(messages.frame, dialect, source.location)
    known.append(messages)
    return messages.frame


def _known_place(opened: OpenedStream, location: str) -> str:
    """A source's place, spelt as it was when rows of it were taken before: the record is kept under that name."""
    place = _one_form(location)
    directory = Layout(opened.root, opened.name).engine_path("ingest")
    names = [name_of_path(name) for name in files.directories(directory) if _CUT not in name]
    if opened.store.exists():
        writers = opened.store.snapshot().counters.batches
        names += [name.removeprefix(WRITER) for name in writers if name.startswith(WRITER)]
    return next((name for name in names if _one_form(name) == place), place)


def _one_form(location: str) -> str:
    """The one form of a source's place, of all in which it may be written.

    Raises:
        UsageError: it is neither a path nor a URI.
    """
    if only_spark_reaches(location):
        return location.rstrip("/")
    place = place_of(location)
    return place.rstrip("/") if files.is_remote(place) else os.path.abspath(place)  # noqa: PTH100


def _other_format(source: Source, before: str) -> RefusedError:
    return RefusedError(
        f"{source.location} was taken as {before} before, not as {source.format}; nothing was read; correct "
        "--source-format"
    )
