"""The layout of a stream's directory: places below its root, names of new files, and the record of its format."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention.config.shared_directories import shared
from retention.core import documents, file_records
from retention.core.inventory import DataFile
from retention.core.spoken_commands import given_up
from retention.core.wording import counted
from retention.errors import DamagedError, RefusedError, VerificationError
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors
from retention.stores.delta import internals

FORMAT_VERSION = 3
"""The highest version of this layout that is known; a directory that names a higher one is refused."""
_FIRST_VERSION = 1
CLAIMING_VERSION = 2
"""From the first reclaim on: whoever does not know claims could commit files that are being deleted."""
DROPPING_VERSION = 3
"""From the first drop on: whoever does not know of drops would take a dropped stream for an empty one."""

leaving = file_records.outside_mask

_OURS = re.compile(r"(?:.*/)?(?:[0-9a-f]{32}-)?[0-9a-f]{32}\.parquet")
_KIN = r"/(?P<kin>[0-9a-f]{32})-[0-9a-f]{32}\.parquet$"
_VERSION_AT = 12
"""The place of a UUID's version among its hex digits."""
_MERGED = "8"
"""The version, one for names of one's own kind (RFC 9562), of the UUIDs in names of files that merges wrote."""
_OF_MERGE = rf"[/-][0-9a-f]{{{_VERSION_AT}}}{_MERGED}[0-9a-f]{{19}}\.parquet$"


@dataclass(frozen=True)
class StoreSettings:
    """A stream's storage settings, from its configuration."""

    format: str = "delta"
    """`delta` or `parquet`."""
    grace_ns: int = 7 * 86_400 * 10**9
    """The time that removed files stay, nanoseconds."""
    exclusive: bool = False
    """No other writer runs: operations that an object store cannot exclude are allowed."""
    quiet: bool = False
    """Removals are committed so that streaming readers of the table do not see them."""
    spark_writes: bool = False
    """Spark writes to the table while the engine does: on a local disk each commit is looked at again."""
    partitions: int = 1
    """The number of partitions of a topic; streams have one."""
    first_seq: int = 1
    """The lowest sequence that a message can have: offsets of topics begin at 0."""


@dataclass(frozen=True)
class Layout:
    """The places below `<warehouse>/streams/<name>`; a `path` is relative to `messages/`."""

    root: str
    stream: str
    partitions: int = 1
    """The number of partitions: those from 0 to below it may have files."""
    first_seq: int = 1
    """No message has a lower sequence."""

    @property
    def messages(self) -> str:
        """The table's directory."""
        return files.join(self.root, "messages")

    def engine_path(self, *parts: str) -> str:
        """A place in the engine's own directory."""
        return files.join(self.root, "_retention", *parts)

    def live(self, path: str) -> str:
        """The place of a data file of the table."""
        return files.join(self.messages, path)

    def data_file(self, row: tuple[str, int, int], location: str) -> DataFile:
        """The data file of a row (path, partition and segment), to be opened at `location`."""
        path, partition, segment = row
        digest = self.engine_path("subjects", path)
        return DataFile(path, partition, segment, location, digest, stream=self.stream)


def new_path(partition: int, segment: int, kin: str | None = None, *, merged: bool = False) -> str:
    """A path never used before, for a new file of a segment.

    Args:
        partition: the segment's.
        segment: its base.
        kin: the token of those files together with which the rows are written, apart by deadline.
        merged: whether a merge writes the file, or it takes the place of one that a merge wrote.
    """
    name = uuid.uuid4().hex
    if merged:
        name = f"{name[:_VERSION_AT]}{_MERGED}{name[_VERSION_AT + 1 :]}"
    family = "" if kin is None else f"{kin}-"
    return f"partition={partition}/segment={segment}/{family}{name}.parquet"


def merged_mask(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A mask of the files that merges wrote, by their names, or that took the place of such."""
    return pc.match_substring_regex(paths, _OF_MERGE)


def siblings_of(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The token of kin in the name of each file that was written together with others, apart by deadline; else null.

    No sequence stands in two files of one kin, though their ranges meet: each row was put into one, and a copy takes
    the place of the file that it copies.
    """
    return pc.struct_field(pc.extract_regex(paths, _KIN), "kin")


def is_ours(path: str) -> bool:
    """Whether the engine itself gave a file its name."""
    return _OURS.fullmatch(path) is not None


def refuse_links_out(root: str, stream: str) -> None:
    """Refuse a stream of which a directory is a symbolic link that leads out of `streams/`.

    Raises:
        RefusedError: naming the link and where it leads.
    """
    if files.is_remote(root):
        return
    with as_storage_errors(root):
        inside = Path(root).parent.resolve()
        for place in _top(Path(root)):
            if place.is_symlink() and not place.resolve().is_relative_to(inside):
                raise RefusedError(
                    f"{place}: this link of stream {stream} leads out of the warehouse, to {place.resolve()}; "
                    "nothing was read or changed; put the directory itself there"
                )


def _top(root: Path) -> Iterator[Path]:
    """A stream's directories, and their direct entries."""
    if root.is_dir():
        for directory in (root, root / "messages", root / "_retention"):
            yield directory
            yield from directory.iterdir() if directory.is_dir() else ()


def identities(table: pa.Table) -> list[tuple[str, int, int]]:
    """Path, partition and segment of each row, as Python values."""
    columns = (table[name].to_pylist() for name in ("path", "partition", "segment"))
    return list(zip(*columns, strict=True))


def check_inside(layout: Layout, paths: pa.ChunkedArray) -> None:
    """Refuse to open anything outside the table's directory.

    Raises:
        VerificationError: a path leads out of it.
    """
    outside = paths.filter(leaving(paths))
    if len(outside):
        raise VerificationError(
            f"stream {layout.stream}: a record names {outside[0].as_py()}, outside the table's directory; nothing was "
            "changed; restore the record that it comes from, or plan again"
        )


def check_lengths(layout: Layout, table: pa.Table, data_files: Sequence[DataFile]) -> None:
    """Hold the data files that are about to be opened against the lengths that the log has.

    Raises:
        DamagedError: a file is missing, or was changed after it was committed.
    """
    lengths = files.lengths([file.location for file in data_files])
    for file, length, logged in zip(
        data_files, lengths, table["file_bytes"].to_pylist(), strict=True
    ):
        if length is None and file.later is not None:
            length = files.length(file.later)  # noqa: PLW2901  (a rival's commit took it away this moment)
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
    """The record in a stream's directory of the format that it has (`_retention/format.json`)."""

    format: str
    made: bool
    """Whether its table was made; directories that earlier versions of this program made do not say so at once."""
    stream: str | None
    """The stream whose directory it is; None: an earlier version of this program wrote the record, and did not say."""

    version: int = _FIRST_VERSION

    @property
    def was_dropped(self) -> bool:
        """Whether the stream was dropped once, or was about to be: whether it is, its log alone tells."""
        return self.version >= DROPPING_VERSION

    @property
    def is_whole(self) -> bool:
        """Whether the record says all that is to be said of a stream with a table."""
        return self.made and self.stream is not None


def check_format(layout: Layout, wanted: str) -> FormatRecord | None:
    """Read the format record of the stream's directory, None if it has none; refuse what must not be touched.

    Raises:
        RefusedError: the stream has the other format, a newer version wrote it, or it is another stream's.
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
    """Refuse a local directory that says it is another stream's, before a lease is taken in it.

    Raises:
        RefusedError: naming both streams.
    """
    if files.is_remote(root):
        return
    content = files.read_bytes(Layout(root, stream).engine_path("format.json")) or b""
    # What cannot be read is refused where it is needed.
    with suppress(ValueError, AttributeError):
        owner = parse_json(content).get("stream", stream)
        if owner != stream:
            raise shared(root, stream, str(owner))


def write_format(layout: Layout, format_: str) -> None:
    """Record in the stream's directory which format it is about to have, and whose it is."""
    _write_format(layout, {"format": format_})
    reached(Step.FORMAT_WRITTEN)


def note_made(layout: Layout, format_: str) -> None:
    """Record in the stream's directory that its table is made: if the table is gone later, it was lost."""
    _write_format(layout, {"format": format_, "made": True})
    reached(Step.MADE_NOTED)


def note_claiming(layout: Layout, format_: str) -> None:
    """Record in the stream's directory that dead files are claimed and deleted: earlier releases refuse it then."""
    if _raise_version(layout, format_, CLAIMING_VERSION):
        reached(Step.CLAIMING_NOTED)


def note_dropping(layout: Layout, format_: str) -> None:
    """Record in the stream's directory that the stream is about to be dropped: earlier releases refuse it then."""
    if _raise_version(layout, format_, DROPPING_VERSION):
        reached(Step.DROPPING_NOTED)


def _raise_version(layout: Layout, format_: str, version: int) -> bool:
    """Raise the version of a stream's directory to at least this one; whether it was lower."""
    content = files.read_bytes(layout.engine_path("format.json")) or b"{}"
    if parse_json(content).get("format_version", 0) >= version:
        return False
    _write_format(layout, {"format": format_, "made": True, "format_version": version})
    return True


def _write_format(layout: Layout, content: dict[str, object]) -> None:
    content = {"format_version": _FIRST_VERSION, "stream": layout.stream, **content}
    files.replace(layout.engine_path("format.json"), json.dumps(content).encode())


def _traces(layout: Layout) -> str | None:
    if internals.log_names(layout.messages):
        return "delta"
    return "parquet" if files.names(layout.engine_path("log")) else None


def _refuse_other(layout: Layout, wanted: str, actual: str | None) -> None:
    if actual not in (None, wanted):
        raise RefusedError(
            f"{layout.root}: stream {layout.stream} is stored as {actual}, the configuration says "
            f"format: {wanted}; nothing was changed; say format: {actual}, or use another warehouse"
        )
