"""Parts of an ack log in a file, a directory of files, or a Delta table, with their numbers of lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.errors import UsageError
from retention.formats.ack.log import AckLog, LogPart, unreadable
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.errors import as_storage_errors
from retention.storage.places import place_of
from retention.stores.delta.internals import is_table

PART_BYTES = 32 << 20
_PARQUET = ".parquet"
_KINDS = (_PARQUET, ".json", ".jsonl")


def open_log(location: str, name: str | None = None, times: AcceptedTimes = ALL_TIMES) -> AckLog:
    """Find a log's parts without parsing a line.

    The lines of a directory are in the order of its file names; the lines of a Delta table are in the order in which
    its files were written. An incomplete last line of a JSON file is left for later.

    Args:
        location: a file (Parquet by its suffix, or else JSON lines), a directory of files, or a Delta table; local or
            `s3://`.
        name: the log's name, independent of its location; by default the location.
        times: the permitted times of its messages.

    Raises:
        UsageError: there is no log, or one of its files cannot be read.
    """
    place = place_of(location)
    place = place if files.is_remote(place) else str(Path(place).absolute())
    parts = [part for file in _files(place) for part in _parts(file)]
    return AckLog(name or place, tuple(parts), times)


def _files(place: str) -> list[str]:
    if _is_file(place):
        return [place]
    if is_table(place):
        return _delta_files(place)
    inside = [path for path in files.walk(place) if path.endswith(_KINDS) and not _hidden(path)]
    if not inside:
        raise UsageError(
            f"{place} cannot be read as a log of acks (there is no such file, nor a directory with files that end in "
            f"{', '.join(_KINDS)}); name a file, a directory or a Delta table"
        )
    return [files.join(place, path) for path in inside]


def _is_file(place: str) -> bool:
    if files.is_remote(place):
        return files.length(place) is not None
    with as_storage_errors(place):
        return Path(place).is_file()


def _hidden(path: str) -> bool:
    return any(component.startswith(("_", ".")) for component in path.split("/"))


def _delta_files(place: str) -> list[str]:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    options = files.storage_options() if files.is_remote(place) else None
    try:
        table = DeltaTable(place, storage_options=options)
        hidden = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().num_rows
        actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    except (DeltaError, OSError) as error:
        raise unreadable(place, error) from error
    if hidden:
        raise unreadable(place, "rows of it are deleted, and a log only grows")
    ordered = actions.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    return [files.join(place, unquote(path)) for path in ordered["path"].to_pylist()]


def _parts(file: str) -> Iterator[LogPart]:
    try:
        yield from _row_groups(file) if file.endswith(_PARQUET) else _blocks(file)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, error) from error


def _row_groups(file: str) -> Iterator[LogPart]:
    with files.open_input(file) as source:
        footer = parquet.ParquetFile(source).metadata
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        yield LogPart(file, group.num_rows, group.total_byte_size, row_group=number)


def _blocks(file: str) -> Iterator[LogPart]:
    """Yield the parts of a JSON file: whole lines, several megabytes each."""
    begin, rest = 0, b""
    with files.open_input(file) as source:
        while content := source.read(PART_BYTES):
            block = rest + content
            length = block.rfind(b"\n") + 1
            if length:
                yield LogPart(file, block.count(b"\n"), length, begin)
            begin, rest = begin + length, block[length:]
    if _is_whole(rest):
        yield LogPart(file, 1, len(rest), begin)


def _is_whole(line: bytes) -> bool:
    try:
        return bool(parse_json(line))
    except ValueError:
        return False
