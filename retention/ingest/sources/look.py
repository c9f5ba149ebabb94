"""Inspection of a source: the rows to take, given those taken here or under another name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace

from retention.context.context import OpenedStream
from retention.core.subjects import name_of_path
from retention.errors import RefusedError, RetentionError, UsageError
from retention.ingest.sources.backlog import Backlog, SourceReader
from retention.ingest.sources.contents import SourceContents
from retention.ingest.sources.delta_log import DeltaLog
from retention.ingest.sources.delta_source import TABLE, DeltaSource
from retention.ingest.sources.directory import SourceFile, Wishes
from retention.ingest.sources.directory_source import DirectorySource, converted
from retention.ingest.sources.positions import DeltaPosition, DirectoryPosition, Position
from retention.ingest.sources.records import CUT
from retention.ingest.sources.taking import WRITER, TakenSoFar, Taking
from retention.storage import files
from retention.storage.listing import list_files
from retention.storage.places import only_spark_reaches, place_of
from retention.storage.scratch_files import local_directory

DELTA = "delta"
FORMATS = (DELTA, "parquet", "json", "csv", "orc")


@dataclass(frozen=True)
class InspectedSource:
    """A source inspected for a stream."""

    opened: OpenedStream
    location: str
    format: str
    """One of `FORMATS`."""
    wishes: Wishes
    reader: Callable[[], SourceReader]

    def backlog(self, known: TakenSoFar) -> Backlog:
        """Find the rows to take; if an earlier release took some, continue from its checkpoint.

        Raises:
            UsageError, RefusedError, DamagedError: as `DeltaSource.backlog` and `DirectorySource.backlog`.
        """
        if self.format == DELTA:
            with self._log(known) as log:
                position, backlog = self._of_table(known, log)
        else:
            position, backlog = self._of_directory(known)
        if known.position is None and position is not None and backlog.moved is None:
            return replace(backlog, moved=position)
        return backlog

    def _of_table(self, known: TakenSoFar, log: DeltaLog) -> tuple[Position | None, Backlog]:
        source, position = DeltaSource(self.location, self.wishes, log), known.position
        if known.checkpoint is not None and known.batch is not None:
            position = source.taken_until(*known.checkpoint.taken_version(known.batch))
        if not isinstance(position, DeltaPosition | None):
            raise self._other_format("a directory")
        if known.batch is None:
            table_id = str(log.state(log.newest()).metadata["id"])
            position = self._elsewhere(
                lambda other: isinstance(other, DeltaPosition) and other.table_id == table_id
            )
        return position, source.backlog(position)  # type: ignore[arg-type]

    def _of_directory(self, known: TakenSoFar) -> tuple[Position | None, Backlog]:
        is_ours = not only_spark_reaches(self.location)
        listing = _listed(self.location) if is_ours else self.reader().listing(self.location)
        contents = SourceContents(self.location, self.format, readable=is_ours)
        source, position = (
            DirectorySource(self.location, self.format, contents, self.wishes.below(self.location)),
            known.position,
        )
        if known.checkpoint is not None and known.batch is not None:
            taken = known.checkpoint.taken_files(known.batch)
            position = converted(self.location, self.format, listing, taken)
        if not isinstance(position, DirectoryPosition | None):
            raise self._other_format("a Delta table")
        if known.batch is None:
            position = self._elsewhere(lambda other: _holds(listing, other))
        return position, source.backlog(listing, position)  # type: ignore[arg-type]

    def _elsewhere(self, is_same: Callable[[Position], bool]) -> Position | None:
        """The position recorded under another name, if the user says that it applies to this source.

        Raises:
            RefusedError: the user has not said.
        """
        if TABLE in self.wishes.take:
            return None
        for name in known_places(self.opened):
            with suppress(RetentionError):
                other = Taking(self.opened, name, self.reader).so_far().position
                if name == self.location or other is None or not is_same(other):
                    continue
                if TABLE in self.wishes.skip:
                    return other
                break
        else:
            return None
        raise RefusedError(
            f"{self.location} has the rows that were taken as {name}: it was moved or copied; nothing was read, so "
            "that no row is taken twice; run once with --skip table to continue after the rows taken there, or --take "
            "table to take all of its rows as new"
        )

    @contextmanager
    def _log(self, known: TakenSoFar) -> Iterator[DeltaLog]:
        """The log of a Delta table, or a copy of it where only Spark can reach the table."""
        if not only_spark_reaches(self.location):
            yield DeltaLog(self.location)
            return
        with closing(local_directory()) as scratch:
            after = known.position.version if isinstance(known.position, DeltaPosition) else None
            self.reader().log(self.location, after, scratch.location)
            yield DeltaLog(scratch.location)

    def _other_format(self, before: str) -> RefusedError:
        return RefusedError(
            f"{self.location} was taken as {before} before, not as {self.format}; nothing was read; correct "
            "--source-format"
        )


def known_places(opened: OpenedStream) -> list[str]:
    """The locations of all sources that were ever taken into a stream, as spelled then."""
    directory = opened.layout.engine_path("ingest")
    names = [name_of_path(name) for name in files.directories(directory) if CUT not in name]
    if opened.table.exists():
        writers = opened.store.snapshot().counters.batches
        names += [name.removeprefix(WRITER) for name in writers if name.startswith(WRITER)]
    return list(dict.fromkeys(names))


def known_place(opened: OpenedStream, location: str) -> str:
    """A source's location, spelled as when its rows were first taken: the record is kept under that name.

    Raises:
        UsageError: it is neither a path nor a URI.
    """
    place = _one_form(location)
    return next((name for name in known_places(opened) if _one_form(name) == place), place)


def _one_form(location: str) -> str:
    """The canonical form of a source's location."""
    if only_spark_reaches(location):
        return location.rstrip("/")
    place = place_of(location)
    return place.rstrip("/") if files.is_remote(place) else os.path.abspath(place)  # noqa: PTH100


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


def _holds(listing: list[SourceFile], other: Position) -> bool:
    """Whether a directory has a taken file of another source: same path, length and time, or same ETag."""
    if not isinstance(other, DirectoryPosition):
        return False
    return any(
        file.length and file.path in other.files and other.files[file.path].is_still(file)
        for file in listing
    )
