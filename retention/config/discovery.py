"""Discovery of the configuration file for a path, and the error for an unknown stream with a likely name."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from retention.core.spoken_commands import command
from retention.errors import UsageError
from retention.storage.errors import as_storage_errors
from retention.storage.places import S3, place_of, refused_scheme

if TYPE_CHECKING:
    from retention.config import Config

CONFIG_NAME = "retention.yaml"
_MOST_NAMES = 12
_NAME_ONE = "name another with --warehouse DIR or --config FILE, or make one by publishing or importing into it"
_PARTS = {"streams", "runs"}
"""Directories of a warehouse without a file; at least one of them exists after the first write."""
_SUFFIXES = {".yaml", ".yml", ".json"}
_LINES = {".jsonl", ".ndjson"}
_FRAMES = {".parquet", ".csv", ".avro", ".orc"}


def find_config(path: str | Path) -> Config:
    """Load the configuration of a file, or of a warehouse; a warehouse without a file has no limits.

    Raises:
        ConfigError: the configuration is not valid; every mistake is reported with its line.
        UsageError: the path is data: JSON lines, a file with rows, or a Delta table.
    """
    _refuse_data(str(path))
    # Importing the models takes a third of a second, which `--help` need not spend.
    from retention.config import Config, load_config

    file = config_file(path)
    if file is None:
        local = Path(place_of(str(path)))
        with as_storage_errors(str(path)):
            names = [entry.name for entry in local.iterdir()] if local.is_dir() else []
        _refuse_table(str(path), names)
        return Config.without_file(str(path))
    return load_config(file, _content(file) if isinstance(file, str) else None)


def _refuse_data(path: str) -> None:
    """Refuse a path that holds data, and say how to read it."""
    suffix = PurePosixPath(path).suffix
    if suffix in _LINES | _FRAMES:
        way = (
            f"store its messages with {command('publish', 'STREAM', path)}"
            if suffix in _LINES
            else "append its rows with `retention-job ingest --stream STREAM --source "
            f"{shlex.quote(path)}`"
        )
        raise UsageError(
            f"{path}: is data, and --warehouse and --config name a warehouse or {CONFIG_NAME}; name one of these, and "
            f"{way}"
        )


def _refuse_table(location: str, names: Collection[str]) -> None:
    """Refuse a Delta table in place of a warehouse, by the names in its directory."""
    if not _PARTS.isdisjoint(names):
        return
    # Loads Arrow, which a warehouse with streams need not do.
    from retention.delta.log_files import log_directory

    if PurePosixPath(log_directory(location)).name in names:
        raise UsageError(
            f"{location}: is a Delta table, not a warehouse; list it in {CONFIG_NAME} of another directory with "
            f"{command('adopt', location)}"
        )


def config_file(path: str | Path) -> str | Path | None:
    """The file to read for a path, a string on an object store; None: a directory or a prefix without one.

    Raises:
        StorageError: the object store cannot be read, so its rules are unknown.
    """
    if refused_scheme(str(path)) is not None:
        return None
    place = place_of(str(path))
    if place.startswith(S3):
        return _object(place)
    local = Path(place)
    with as_storage_errors(str(path)):
        if local.is_file() or local.suffix in _SUFFIXES:
            return local
        inside = local / CONFIG_NAME
        return inside if inside.is_file() else None


def _object(location: str) -> str | None:
    if PurePosixPath(location).suffix in _SUFFIXES:
        return location
    if not location.removeprefix(S3).strip("/"):
        return None
    inside = f"{location.rstrip('/')}/{CONFIG_NAME}"
    return inside if _content(inside) is not None else None


def _content(location: str) -> bytes | None:
    # Only a warehouse on an object store needs Arrow to find its configuration.
    from retention.storage import files

    return files.read_bytes(location)


def refuse_missing(config: Config) -> None:
    """Verify that there is a warehouse to read, before an operation on several or all of its streams.

    A configuration that lists streams has them before the first write. Without a file, an empty directory is a
    warehouse that was never written to; one with unrelated content is not a warehouse.

    Raises:
        UsageError: the location does not exist, or is not a warehouse.
        StorageError: the location cannot be read.
    """
    from retention.storage import files

    if config.streams or config.tables:
        return
    location = config.warehouse
    held = {*files.directories(location), *files.names(location)}
    if not held and not (not files.is_remote(location) and Path(location).is_dir()):
        named = "" if config.file is None else f", which {config.file} names,"
        raise UsageError(f"{location}: there is no warehouse{named} at this place; {_NAME_ONE}")
    if config.file is None and held and held.isdisjoint(_PARTS):
        _refuse_table(location, held)
        raise UsageError(
            f"{location}: is not a warehouse, because it has neither {CONFIG_NAME} nor streams; {_NAME_ONE}"
        )


def no_streams(location: str) -> str:
    """The sentence for an existing warehouse without streams."""
    return f"{location}: the warehouse is empty; no streams: publish or import into one, or list it in {CONFIG_NAME}"


def no_own_streams(location: str) -> str:
    """The sentence for a warehouse with only streams of other configurations."""
    return (
        f"{location}: other configurations own all streams here; name the file of one with --config"
    )


def table_error(name: str) -> UsageError:
    """The error for a table in place where a stream or topic is meant."""
    return UsageError(
        f"{name}: is a table in place, and this is for streams and topics; tables have "
        f"{command('plan', name)}, apply, state, history, undo and reclaim"
    )


def unknown_stream_error(
    name: str, names: Sequence[str], location: str, tables: Sequence[str] = ()
) -> UsageError:
    """The error for a name that is not among the streams of a warehouse at `location`, nor among the tables."""
    if tables:
        names = [*names, *tables]
        return UsageError(
            f"{name}: there is no such stream or table in {location}; there are {listed_names(names)}"
            f"{_hint(name, names)}"
        )
    if not names:
        return UsageError(
            f"{name}: there is no such stream in {location}, nor any other; publish or import into it, or list it in "
            f"{CONFIG_NAME}"
        )
    hint = _hint(name, names)
    return UsageError(
        f"{name}: there is no such stream in {location}; there are {listed_names(names)}{hint}"
    )


def listed_names(names: Sequence[str]) -> str:
    """The first of some names, in one line."""
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")


def close_name(name: str, names: Sequence[str]) -> str:
    """The most similar of some names."""
    return difflib.get_close_matches(name, names, n=1, cutoff=0)[0]


def unlisted_stream(name: str, names: Sequence[str]) -> str:
    """The sentence for a stream that a write has created, and that no configuration lists."""
    hint = _hint(name, [other for other in names if other != name])
    return (
        f"{name}: this write created the stream; it is not in {CONFIG_NAME}, so it takes any subject and keeps "
        f"everything; list it there to limit it{hint}"
    )


def unlisted_streams(names: Sequence[str], config: Config) -> tuple[str, str]:
    """The clauses for streams of a warehouse that no configuration lists any more: the fact, and the remedy."""
    listed = [stream.name for stream in config.streams]
    are, it = ("are", "them") if names[1:] else ("is", "it")
    hints = {hint for name in names if (hint := _hint(name, listed))}
    return (
        f"{listed_names(names)} {are} in the warehouse, and {config.file} does not list {it}, so no rule "
        f"removes anything from {it}",
        f"list {it} there, remove {it} with {command('drop', names[0])}, or write `unlisted: keep`"
        f"{hints.pop() if len(hints) == 1 else ''}",
    )


def _hint(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""
