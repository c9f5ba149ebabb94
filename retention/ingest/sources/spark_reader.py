"""The Spark part of taking a source: columns, rows, and error sentences for files that it cannot read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retention.context.context import OpenedStream
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.errors import BusyError, DamagedError, RefusedError, RetentionError
from retention.ingest.append import Appended
from retention.ingest.dataframe import append_frame
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.sources.backlog import Batch, DeltaBatch, FilesBatch
from retention.ingest.sources.columns import Columns
from retention.ingest.sources.delta_view import view_entry
from retention.ingest.sources.directory import SourceFile
from retention.ingest.sources.partitions import values_of
from retention.ingest.sources.readable import (
    ReadableFile,
    absolute,
    fault_of,
    readable_files,
    readable_places,
)
from retention.planners.scratch import DIRECTORY
from retention.storage import files, scratch_files
from retention.storage.scratch_files import ScratchDirectory
from retention.stores.delta import internals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_TABLES = "a file of a Delta table"


@dataclass(frozen=True)
class SparkReader:
    """A session that reads a source for a stream, under settings independent of the cluster's."""

    session: SparkSession
    opened: OpenedStream
    messages: Callable[[DataFrame], DataFrame]
    """Turns rows of the source into those of an append; raises a UsageError if it cannot."""
    times: AcceptedTimes = ALL_TIMES
    """The instants that its rows may give."""

    def listing(self, location: str) -> list[SourceFile]:
        """The files under a location that only Spark can reach.

        Raises:
            UsageError: there are none.
        """
        from retention.engines.spark.source_rows import listed_files

        with self._reading("files", {}):
            listed = listed_files(self.session, location)
        heads = [uri.find(location) for uri, _, _ in listed]
        return [
            SourceFile(uri[head + len(location) :].lstrip("/"), length, at_ms * 1_000_000)
            for (uri, length, at_ms), head in zip(listed, heads, strict=True)
        ]

    def log(self, location: str, after: int | None, directory: str) -> None:
        """Copy the log of a Delta table at a location that only Spark can reach.

        Args:
            location: the table's.
            after: the version up to which it was taken; None: it never was.
            directory: receives the copy, laid out as the table's own directory.

        Raises:
            UsageError: there is no log.
        """
        from retention.engines.spark.source_rows import copied_log

        with self._reading("files", {}):
            entries = copied_log(self.session, internals.log_directory(location), after)
        files.make_directory(internals.log_directory(directory))
        for name, content in entries:
            with scratch_files.create(files.join(internals.log_directory(directory), name)) as sink:
                sink.write(content)

    def columns(self, format_: str, places: Sequence[str]) -> Columns:
        """The combined columns of some files.

        Raises:
            DamagedError: one of them cannot be read.
            UsageError: they contradict each other.
        """
        from retention.engines.spark.source_rows import inferred_columns

        with closing(self._scratch()) as scratch, self._reading(format_, {}):
            readable = readable_places(places, scratch.location)
            return inferred_columns(self.session, format_, readable)

    def append(self, batch: Batch, identify: Callable[[], BatchIdentity]) -> Appended:
        """Append the rows of a batch, once.

        Args:
            batch: files that have rows.
            identify: called for the batch's identity after all of them were read.

        Raises:
            DamagedError: a file cannot be read.
            RefusedError: a file of a Delta table is gone; or as `append_frame`.
            BusyError: a file was changed or deleted after it was listed.
            UsageError: as `append_frame`.
        """
        with closing(self._scratch()) as scratch:
            if isinstance(batch, DeltaBatch):
                with self._reading(_OF_TABLES, {}):
                    return self._append(self._delta(batch, scratch.location), identify)
            readable = readable_files(batch, scratch.location)
            origins = {file.place: file for file in readable}
            with self._reading(batch.format, origins, batch.columns):
                return self._append(self._files(batch, readable), identify)

    def _scratch(self) -> ScratchDirectory:
        """A directory that all tasks can reach; it need not exist yet."""
        layout = self.opened.layout
        return ScratchDirectory(layout.engine_path(DIRECTORY, uuid.uuid4().hex))

    def _append(self, rows: DataFrame, identify: Callable[[], BatchIdentity]) -> Appended:
        return append_frame(self.opened, self.messages(rows), identify, self.times)

    def _delta(self, batch: DeltaBatch, scratch: str) -> DataFrame:
        from retention.engines.spark.s3a import for_spark
        from retention.engines.spark.source_rows import delta_rows

        table = for_spark(absolute(batch.location))
        entry = view_entry(table, batch.protocol, batch.metadata, batch.adds)
        files.make_directory(internals.log_directory(scratch))
        with scratch_files.create(internals.entry_place(scratch, 0)) as sink:
            sink.write(entry)
        return delta_rows(self.session, absolute(scratch))

    def _files(self, batch: FilesBatch, readable: Sequence[ReadableFile]) -> DataFrame:
        from retention.engines.spark.source_rows import FileToRead, file_rows

        wanted = [
            FileToRead(
                file.place,
                tuple(values_of(file.path)[name] for name in batch.partitions),
                file.width,
            )
            for file in readable
        ]
        return file_rows(self.session, batch.format, batch.columns, batch.partitions, wanted)

    @contextmanager
    def _reading(
        self, format_: str, origins: Mapping[str, ReadableFile], columns: Columns | None = None
    ) -> Iterator[None]:
        """Read in the block under fixed settings; a failure of Spark becomes one sentence with the file's name.

        Raises:
            DamagedError, RefusedError, BusyError: see `append`.
        """
        from retention.engines.spark.fixed_settings import fixed_settings
        from retention.engines.spark.source_failures import read_failure

        with fixed_settings(self.session):
            try:
                yield
            except RetentionError:
                raise
            except Exception as error:
                failure = read_failure(error)
                if failure is None:
                    raise
                if failure.is_missing:
                    raise _missing(failure.place, format_) from error
                read = origins.get(failure.place) or ReadableFile(
                    failure.place, failure.place, failure.place
                )
                where, why = fault_of(read, format_, columns) or (
                    read.origin,
                    failure.why or "it is damaged",
                )
                raise DamagedError(
                    f"{where} cannot be read as {format_}: {why}; nothing of its batch was taken; correct the file, "
                    "replace it with a complete one, or move it out of the source"
                ) from error


def _missing(place: str, format_: str) -> RetentionError:
    """The error for a missing file: one in a directory was just listed, one in a table is still named by its log."""
    if format_ == _OF_TABLES:
        return RefusedError(
            f"{place} is missing, as after a VACUUM, and its rows were not taken yet; nothing of its batch was taken; "
            f"restore the file, or run once with --skip {place} to continue without its rows"
        )
    return BusyError(
        f"{place} was deleted after it was listed; nothing of its batch was taken; run it again, or restore the file"
    )
