"""Copies of erased messages in files that the table does not name: removed, staged, moved aside, or of change data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from retention.context.context import OpenedStream
from retention.core.plain_strings import without_views
from retention.core.vector_paths import data_path, stored_files
from retention.errors import StorageError
from retention.rules.erase import ErasedMessages
from retention.schemas.messages import FILE_COLUMNS
from retention.storage import files, local
from retention.storage.parallel import in_threads
from retention.stores.holds import Hold
from retention.stores.layout import is_ours

Wanted = Callable[[str], ErasedMessages]
"""A function from the path of a file, relative to the stream's directory, to the messages erased in it."""

_NARROW = ("seq", "subject", "ts_ns")
_WITHOUT_MESSAGES = (
    "subjects",
    "stats",
    "log",
    "ids",
    "unstored-ids",
    "replay",
    "erasures",
    "commits",
)
"""Directories of the engine whose files have no rows of messages."""
_BATCH_ROWS = 1 << 14


@dataclass(frozen=True)
class DeadCopy:
    """A file that no version of the table needs and that has messages of an erasure."""

    location: str
    path: str
    """Relative to the stream's directory."""
    bytes: int
    messages: ErasedMessages
    """The messages of the erasure that it may have."""
    rows: int
    """Its rows of the erasure; 0 for a file that was not written to its end, whose rows cannot be read."""
    held: tuple[tuple[int, str], ...] = ()
    """The sequences of its rows under legal holds, each with the hold's id."""


def dead_copies(
    opened: OpenedStream, live: Iterable[str], wanted: Wanted, holds: Sequence[Hold]
) -> list[DeadCopy]:
    """The files with messages of an erasure that are not live, sorted by path.

    Args:
        opened: the stream, with all files at their final locations.
        live: the locations of the live files.
        wanted: the erased messages, by file.
        holds: the legal holds in effect.
    """
    known = set(live)
    candidates = [
        path for path in _data_files(opened) if files.join(opened.root, path) not in known
    ]
    examine = partial(_examined, opened.root, wanted, holds)
    threads = files.read_parallelism(opened.root)
    return [copy for copy in in_threads(examine, candidates, threads) if copy is not None]


def removed_rows(
    opened: OpenedStream, live: Iterable[str], columns: Sequence[str]
) -> Iterator[tuple[str, pa.Table]]:
    """The path of each file that is not live with all its rows, in batches; a file not written to its end has none.

    Args:
        opened: the stream, with all files at their final locations.
        live: the locations of the live files.
        columns: the columns to read, `seq` and `subject` among them.
    """
    known = set(live)
    for path in _data_files(opened):
        location = files.join(opened.root, path)
        if location not in known:
            with suppress(OSError, pa.ArrowException, KeyError):
                for rows in rows_of(location, columns):
                    yield path, rows


def erased_rows(
    location: str, messages: ErasedMessages, columns: Sequence[str] = tuple(FILE_COLUMNS.names)
) -> Iterator[pa.Table]:
    """The rows of an erasure in a data file, also those that a deletion vector hides, in batches.

    Raises:
        FileNotFoundError, OSError, pyarrow.ArrowException: the file is gone, or cannot be read.
    """
    for rows in rows_of(location, columns):
        mask = messages.takes(rows)
        if mask.any():
            yield rows.filter(pa.array(mask))


def rows_of(location: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """All rows of a data file, in batches; none if it has no messages.

    Raises:
        FileNotFoundError, OSError, pyarrow.ArrowException: as `erased_rows`.
    """
    with files.reading(location) as source:
        opened = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        names = [name for name in columns if name in opened.schema_arrow.names]
        if not {"seq", "subject"} <= set(names):
            return
        for batch in opened.iter_batches(_BATCH_ROWS, columns=names):
            yield without_views(pa.Table.from_batches([batch]))


def held_rows(rows: pa.Table, holds: Sequence[Hold]) -> Iterator[tuple[int, str]]:
    """The sequences of rows (`seq`, `subject` and `ts_ns`) under legal holds, each with the hold's id."""
    for hold in holds:
        covered = rows["seq"].to_numpy()[hold.messages.covers(rows)]
        yield from ((seq, hold.id) for seq in covered.tolist())


def companions_of(opened: OpenedStream, copy: DeadCopy) -> list[str]:
    """The locations of the files that describe a dead copy: Hadoop's checksum, and its subject digests."""
    directory, _, name = copy.location.rpartition("/")
    return [files.join(directory, f".{name}.crc")]


def orphaned_digests(opened: OpenedStream) -> list[str]:
    """The locations of subject digests whose data file no longer exists."""
    directory = opened.layout.engine_path("subjects")
    digests = files.walk(directory)
    there = _existing(opened, {data_path(digest) for digest in digests})
    return [files.join(directory, path) for path in digests if data_path(path) not in there]


def unused_vectors(opened: OpenedStream, named: Collection[str]) -> list[str]:
    """The locations of files of deletion vectors that no existing file needs.

    Args:
        opened: the stream.
        named: the paths of the live files, and of those that an undo may restore.
    """
    layout = opened.layout
    there = _existing(opened, map(data_path, named))
    used = {stored for path in named if data_path(path) in there for stored in stored_files(path)}
    names = (name for name in files.names(layout.messages) if name.endswith(".bin"))
    return [layout.live(name) for name in names if name not in used]


def _existing(opened: OpenedStream, paths: Iterable[str]) -> set[str]:
    layout, wanted = opened.layout, sorted({*paths})
    there: set[str] = set()
    places: Sequence[Callable[[str], str]] = (
        layout.live,
        partial(layout.engine_path, "trash"),
        partial(layout.engine_path, "staging"),
    )
    for place in places:
        lengths = files.lengths([place(path) for path in wanted])
        there |= {path for path, length in zip(wanted, lengths, strict=True) if length is not None}
    return there


def _data_files(opened: OpenedStream) -> list[str]:
    """The Parquet files below a stream's directory that may have rows of messages, also under temporary names."""
    paths = [
        files.join("messages", path)
        for path in files.walk(opened.layout.messages)
        if _final_path(path).endswith(".parquet")
    ]
    engine = opened.layout.engine_path()
    for directory in files.directories(engine):
        if directory not in _WITHOUT_MESSAGES:
            inside = files.join(engine, directory)
            paths += (
                files.join("_retention", directory, path)
                for path in files.walk(inside)
                if _final_path(path).endswith(".parquet")
            )
    return sorted(paths)


def _final_path(path: str) -> str:
    """The path that a file has once it is written: its own, unless a killed writer left it under a temporary name."""
    directory, slash, name = path.rpartition("/")
    return directory + slash + (local.target_of(name) or name)


def _examined(root: str, wanted: Wanted, holds: Sequence[Hold], path: str) -> DeadCopy | None:
    """A file, if it has messages of an erasure, or was not written to its end; None: neither.

    Raises:
        StorageError: the storage failed, so that nobody can tell.
    """
    location, messages = files.join(root, path), wanted(path)
    taken, held = 0, set[tuple[int, str]]()
    try:
        for rows in rows_of(location, _NARROW):
            taken += int(messages.takes(rows).sum())
            held.update(held_rows(rows, holds))
    except FileNotFoundError:
        return None
    except StorageError:
        raise
    except (OSError, pa.ArrowException, KeyError):
        # A writer was killed: nothing reads what it left, and what it has cannot be told.
        in_place = path.startswith(("_retention/staging/", "messages/"))
        is_torn = in_place and is_ours(_final_path(path))
        size = files.length(location) or 0
        return DeadCopy(location, path, size, messages, 0) if is_torn else None
    if not taken:
        return None
    size = files.length(location) or 0
    return DeadCopy(location, path, size, messages, taken, tuple(sorted(held)))
