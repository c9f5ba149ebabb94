"""The layout of a stream's directory: locations below its root, and the format record."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from retention.config.shared_directories import shared
from retention.core import documents
from retention.core.spoken_commands import given_up
from retention.core.vector_paths import data_path
from retention.core.wording import counted
from retention.errors import DamagedError, RefusedError
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors
from retention.stores.delta import internals

if TYPE_CHECKING:
    import pyarrow as pa

    from retention.core.inventory import DataFile

FORMAT_VERSION = 4
"""The highest known version of this layout; a directory with a higher version is refused."""
_FIRST_VERSION = 1
CLAIMING_VERSION = 2
"""The version since the first reclaim: a release without claims could commit files that are being deleted."""
DROPPING_VERSION = 3
"""The version since the first drop: a release without drops would take a dropped stream for an empty one."""
HOLDING_VERSION = 4
"""The version since the first legal hold: a release without legal holds would remove held messages."""

_HIDDEN = ("_", ".")

_OURS = re.compile(r"(?:.*/)?(?:[0-9a-f]{32}-)?[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class StoreSettings:
    """A stream's storage settings, from its configuration."""

    format: str = "delta"
    """A name that `stores.format_of` knows."""
    grace_ns: int = 7 * 86_400 * 10**9
    """The retention of removed files, nanoseconds."""
    exclusive: bool = False
    """Whether no other writer runs: then operations are allowed that an object store cannot make exclusive."""
    quiet: bool = False
    """Removals are committed without a data change, so streaming readers of the table do not see them."""
    vectors: bool = False
    """A new table has deletion vectors, so that few scattered removals from a file need no copy of it."""
    spark_writes: bool = False
    """Spark writes to the table while the engine does, so each commit on a local disk is checked again."""
    partitions: int = 1
    """The number of partitions of a topic; streams have one."""
    first_seq: int = 1
    """The lowest possible sequence; offsets of topics begin at 0."""


@dataclass(frozen=True)
class Layout:
    """The locations below `<warehouse>/streams/<name>`; a `path` is relative to `messages/`."""

    root: str
    stream: str
    partitions: int = 1
    """The number of partitions; they are numbered from 0."""
    first_seq: int = 1
    """The lowest possible sequence of a message."""

    @property
    def messages(self) -> str:
        """The table's directory."""
        return files.join(self.root, "messages")

    def engine_path(self, *parts: str) -> str:
        """A location in the engine's own directory."""
        return files.join(self.root, "_retention", *parts)

    @property
    def logs(self) -> dict[str, str]:
        """Format → the directory of its log."""
        return {
            "delta": internals.log_directory(self.messages),
            "parquet": self.engine_path("log"),
        }

    def live(self, path: str) -> str:
        """The location of a data file of the table."""
        return files.join(self.messages, data_path(path))

    def data_file(self, row: tuple[str, int, int], location: str) -> DataFile:
        """The data file of a row (path, partition and segment), to be opened at `location`."""
        from retention.core.inventory import DataFile
        from retention.datafile.hidden_rows import hiding_rows

        path, partition, segment = row
        digest = self.engine_path("subjects", path)
        file = DataFile(path, partition, segment, location, digest, stream=self.stream)
        return hiding_rows(file)


def is_ours(path: str) -> bool:
    """Whether the engine itself named a file."""
    return _OURS.fullmatch(data_path(path)) is not None


def refuse_links_out(root: str, stream: str, links: Sequence[Path]) -> None:
    """Refuse a stream with a symbolic link that leads out of `streams/`.

    Args:
        root: the stream's directory.
        stream: its name.
        links: the symbolic links of the directory, as by `links_of`.

    Raises:
        RefusedError: names the link and its target.
    """
    with as_storage_errors(root):
        for place in links:
            if not place.resolve().is_relative_to(Path(root).parent.resolve()):
                raise RefusedError(
                    f"{place}: this link of stream {stream} leads out of the warehouse, to {place.resolve()}; "
                    "nothing was read or changed; put the directory itself there"
                )


def identities(table: pa.Table) -> list[tuple[str, int, int]]:
    """Path, partition and segment of each row, as Python values."""
    columns = (table[name].to_pylist() for name in ("path", "partition", "segment"))
    return list(zip(*columns, strict=True))


def data_paths(directory: str) -> list[str]:
    """Parquet files below a directory, relative to it, without hidden ones; sorted."""
    return [
        path
        for path in files.walk(directory)
        if path.endswith(".parquet") and not any(p.startswith(_HIDDEN) for p in path.split("/"))
    ]


def check_lengths(layout: Layout, table: pa.Table, data_files: Sequence[DataFile]) -> None:
    """Check data files that are about to be opened against the lengths in the log.

    Raises:
        DamagedError: a file is missing, or was changed after its commit.
    """
    lengths = files.lengths([file.location for file in data_files])
    for file, length, logged in zip(
        data_files, lengths, table["file_bytes"].to_pylist(), strict=True
    ):
        if length is None and file.later is not None:
            length = files.length(file.later)  # noqa: PLW2901  (a rival's commit removed it a moment ago)
        if length != logged:
            state = (
                "is missing"
                if length is None
                else f"has {counted(length, 'byte')} instead of {logged}"
            )
            raise DamagedError(
                f"{file.location}: this data file of stream {layout.stream} {state}; nothing was changed; restore the "
                f"file from a copy{given_up(layout.stream, file.path)}"
            )


@dataclass(frozen=True)
class FormatRecord:
    """The format record in a stream's directory (`_retention/format.json`)."""

    format: str
    made: bool
    """Whether its table was created; records of earlier versions of this program lack this at first."""
    stream: str | None
    """The stream of the directory; None in a record from an earlier version of this program."""

    version: int = _FIRST_VERSION

    @property
    def was_dropped(self) -> bool:
        """Whether the stream was ever dropped or about to be; only its log tells whether it is dropped now."""
        return self.version >= DROPPING_VERSION

    @property
    def is_whole(self) -> bool:
        """Whether the record has all fields for a stream with a table."""
        return self.made and self.stream is not None


def check_format(layout: Layout, wanted: str) -> FormatRecord | None:
    """Read the format record of the stream's directory, None if it has none; refuse an incompatible directory.

    Raises:
        RefusedError: the stream has the other format, a newer version wrote it, or it belongs to another stream.
        DamagedError: `_retention/format.json` cannot be read.
    """
    location = layout.engine_path("format.json")
    content = files.read_bytes(location)
    if content is None:
        _refuse_other(layout, wanted, _traces(layout))
        return None
    try:
        fields = parse_json(content)
        documents.judge(documents.StreamFormat, fields)
        version, format_ = fields["format_version"], fields["format"]
        record = FormatRecord(
            format_,
            fields.get("made") is True,
            fields.get("stream"),
            version,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{location}: not readable ({error}); nothing was changed; restore it from a copy, or "
            "delete it if the table below is whole"
        ) from error
    if version > FORMAT_VERSION:
        raise RefusedError(
            f"{layout.root}: stream {layout.stream} has format version {version}, this engine knows "
            f"versions up to {FORMAT_VERSION}; nothing was changed; use a newer release"
        )
    if record.stream not in (None, layout.stream):
        raise shared(layout.root, layout.stream, str(record.stream))
    _refuse_other(layout, wanted, format_)
    return record


def refuse_foreign_directory(root: str, stream: str) -> None:
    """Refuse a local directory that belongs to another stream, before a lease is taken in it.

    Raises:
        RefusedError: names both streams.
    """
    if files.is_remote(root):
        return
    content = files.read_bytes(Layout(root, stream).engine_path("format.json")) or b""
    # `check_format` refuses an unreadable record.
    with suppress(ValueError, AttributeError):
        owner = parse_json(content).get("stream", stream)
        if owner != stream:
            raise shared(root, stream, str(owner))


def write_format(layout: Layout, format_: str) -> None:
    """Record the stream's name and future format in its directory."""
    _write_format(layout, {"format": format_})
    reached(Step.FORMAT_WRITTEN)


def note_made(layout: Layout, format_: str) -> None:
    """Record in the stream's directory that its table was created; a missing table is a lost table from then on."""
    _write_format(layout, {"format": format_, "made": True})
    reached(Step.MADE_NOTED)


def note_claiming(layout: Layout, format_: str) -> None:
    """Record in the stream's directory that dead files are claimed and deleted; earlier releases then refuse it."""
    if _raise_version(layout, format_, CLAIMING_VERSION):
        reached(Step.CLAIMING_NOTED)


def note_dropping(layout: Layout, format_: str) -> None:
    """Record in the stream's directory that the stream is about to be dropped; earlier releases then refuse it."""
    if _raise_version(layout, format_, DROPPING_VERSION):
        reached(Step.DROPPING_NOTED)


def note_holding(layout: Layout, format_: str) -> None:
    """Record in the stream's directory that it has legal holds; earlier releases then refuse it."""
    if _raise_version(layout, format_, HOLDING_VERSION):
        reached(Step.HOLDING_NOTED)


def _raise_version(layout: Layout, format_: str, version: int) -> bool:
    """Raise the version of a stream's directory to at least this one; True if it was lower."""
    content = files.read_bytes(layout.engine_path("format.json")) or b"{}"
    if parse_json(content).get("format_version", 0) >= version:
        return False
    _write_format(layout, {"format": format_, "made": True, "format_version": version})
    return True


def _write_format(layout: Layout, content: dict[str, object]) -> None:
    content = {"format_version": _FIRST_VERSION, "stream": layout.stream, **content}
    files.replace(layout.engine_path("format.json"), json.dumps(content).encode())


def _traces(layout: Layout) -> str | None:
    return next((name for name, log in layout.logs.items() if files.names(log)), None)


def _refuse_other(layout: Layout, wanted: str, actual: str | None) -> None:
    if actual not in (None, wanted):
        raise RefusedError(
            f"{layout.root}: stream {layout.stream} is stored as {actual}, the configuration says "
            f"format: {wanted}; nothing was changed; say format: {actual}, or use another warehouse"
        )
