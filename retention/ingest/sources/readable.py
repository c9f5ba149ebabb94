"""Files of a directory in a form that Spark can read: a copy, where only a part is wanted or the name is unreadable."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from retention.ingest.sources.backlog import FilesBatch
from retention.ingest.sources.columns import Columns, names_of
from retention.ingest.sources.contents import LINES, PACKED, pieces_of
from retention.ingest.sources.damage import first_bad_line
from retention.ingest.sources.directory import FilePart
from retention.storage import files, scratch_files
from retention.storage.places import ON_S3, only_spark_reaches

_HEAD = 1 << 20


@dataclass(frozen=True)
class ReadableFile:
    """A file that Spark reads in full."""

    place: str
    """The location that Spark reads."""
    path: str
    """Relative to the source."""
    origin: str
    """The source's own file."""
    start: int = 0
    """The bytes of the file before the ones to read."""
    width: int | None = None
    """For CSV: the number of columns in its first line, if fewer than the source has."""


def readable_files(batch: FilesBatch, directory: str) -> list[ReadableFile]:
    """The files of a batch in a form that Spark can read.

    Args:
        batch: its parts are at a source's location.
        directory: receives copies; all tasks can reach it.

    Raises:
        FileNotFoundError: a file is gone.
        StorageError: the storage failed.
    """
    return [
        _readable(batch, part, files.join(directory, str(number)))
        for number, part in enumerate(batch.parts)
    ]


def readable_places(places: Sequence[str], directory: str) -> list[str]:
    """Whole files, copied where Spark cannot read their names.

    Args:
        places: the files.
        directory: receives copies; all tasks can reach it.
    """
    wanted = map(absolute, places)
    return [
        _copied(place, 0, files.stat(place)[0], files.join(directory, str(number)))
        if _is_odd(place)
        else place
        for number, place in enumerate(wanted)
    ]


def absolute(location: str) -> str:
    """A location with the same meaning in every process."""
    is_uri = location.startswith(ON_S3) or only_spark_reaches(location)
    return location if is_uri else str(Path(location).absolute())


def fault_of(read: ReadableFile, format_: str, columns: Columns | None) -> tuple[str, str] | None:
    """File and line of the first line that is not a row, and the reason; None: unknown."""
    if format_ not in LINES or read.origin.endswith(PACKED) or only_spark_reaches(read.origin):
        return None
    with suppress(OSError):
        before = sum(piece.count(b"\n") for piece in pieces_of(read.origin, 0, read.start))
        length = files.stat(read.origin)[0]
        line = first_bad_line(
            format_, _lines(read.origin, read.start, length), columns or {"fields": []}, read.width
        )
        if line is not None:
            return f"{read.origin}, line {before + line[0]:,}", line[1]
    return None


def _readable(batch: FilesBatch, part: FilePart, copy: str) -> ReadableFile:
    origin = absolute(files.join(batch.location, part.file.path))
    place = origin
    if part.start or _is_odd(origin):
        place = _copied(origin, part.start, part.file.length, copy)
    width = _width(batch, place) if batch.format == "csv" else None
    return ReadableFile(place, part.file.path, origin, part.start, width)


def _copied(origin: str, start: int, end: int, directory: str) -> str:
    """Copy some bytes of a file to a name that Hadoop can read; the copy's location."""
    place = absolute(files.join(directory, origin.rpartition("/")[2].replace(":", "_")))
    files.make_directory(directory)
    with scratch_files.create(place) as sink:
        for piece in pieces_of(origin, start, end):
            sink.write(piece)
    return place


def _is_odd(place: str) -> bool:
    """Whether Hadoop cannot read a local file because its path contains a colon."""
    return ":" in place and place.startswith("/")


def _width(batch: FilesBatch, place: str) -> int | None:
    """The number of columns in a CSV file's first line, if lower than the source's; None: it is not."""
    if place.endswith(PACKED) or only_spark_reaches(place):
        return None
    line = next(_lines(place, 0, _HEAD), b"").decode("utf-8-sig", errors="replace").strip("\r\n")
    width = len(next(csv.reader([line], escapechar="\\"), []))
    return width if 0 < width < len(names_of(batch.columns)) else None


def _lines(place: str, start: int, end: int) -> Iterator[bytes]:
    """The lines of a part of a file."""
    rest = b""
    for piece in pieces_of(place, start, end):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest
