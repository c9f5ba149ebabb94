"""Discovery of the configuration file for a path, and the error for an unknown stream with a likely name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from retention.errors import UsageError
from retention.storage.errors import as_storage_errors
from retention.storage.places import S3, place_of, refused_scheme

if TYPE_CHECKING:
    from retention.config import Config

CONFIG_NAME = "retention.yaml"
_MOST_NAMES = 12
_SUFFIXES = {".yaml", ".yml", ".json"}


def find_config(path: str | Path) -> Config:
    """Load the configuration of a file, or of a warehouse; a warehouse without a file has no limits.

    Raises:
        ConfigError: the configuration is wrong; every mistake is named with its line.
    """
    # Reading configurations costs a third of a second, which `--help` has no use for.
    from retention.config import Config, load_config

    file = config_file(path)
    if file is None:
        return Config.without_file(str(path))
    return load_config(file, _content(file) if isinstance(file, str) else None)


def config_file(path: str | Path) -> str | Path | None:
    """The file to read for a path, a string on an object store; None for a directory or a prefix without one.

    Raises:
        StorageError: the object store cannot be asked, so that rules that may stand there are not known.
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


def unknown_stream_error(name: str, names: Sequence[str], location: str) -> UsageError:
    """The error for the name of a stream that is not among those of a warehouse at `location`."""
    if not names:
        return UsageError(
            f"{name}: there is no such stream in {location}, nor any other; publish or import into it, or list it in "
            f"{CONFIG_NAME}"
        )
    listed = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return UsageError(f"{name}: there is no such stream in {location}; there are {listed}{hint}")
