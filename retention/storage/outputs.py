"""Output files at a user's location: they replace only an empty file or an earlier file of the same kind."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from retention.errors import UsageError
from retention.storage.errors import as_storage_errors
from retention.storage.places import place_of

_HEAD_BYTES = 4096
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)|/dev/(stdout|stderr)")


@dataclass(frozen=True)
class OutputKind:
    """A kind of file that a command writes."""

    name: str
    """The name with its article: `a saved plan`."""
    recognizes: Callable[[Any], bool]
    """Whether an open, nonempty file is of this kind; may raise any decoder's errors."""


def begins(pattern: str) -> Callable[[Any], bool]:
    """A predicate: whether the first 4,096 bytes of a file match a regular expression at the start."""
    compiled = re.compile(pattern.encode(), re.DOTALL)
    return lambda source: compiled.match(source.read(_HEAD_BYTES)) is not None


def check_output(location: str, kind: OutputKind) -> None:
    """Refuse a place with anything other than a file of the kind; call this before the work that produces the file.

    Raises:
        UsageError: it has another file, or it is a directory.
        StorageError: the existing file cannot be read.
    """
    from retention.storage import files

    place = place_of(location)
    if not files.is_remote(place):
        mode = _mode(place)
        if mode is None or _is_stream(mode) or _DESCRIPTOR.fullmatch(place):
            return
        if stat.S_ISDIR(mode):
            raise UsageError(f"{place}: is a directory, not {kind.name}; name a file in it")
    if files.length(place) and not _is_one(place, kind):
        raise UsageError(
            f"{place}: holds something other than {kind.name}, and stays as it is; name another file, or remove that "
            "one"
        )


def is_stream(location: str) -> bool:
    """Whether a place is a device or a pipe, which accepts bytes but stores no file."""
    mode = _mode(place_of(location))
    return mode is not None and _is_stream(mode)


@contextmanager
def open_output(location: str, kind: OutputKind) -> Iterator[Any]:
    """Write a file to a user's place, completely or not at all; a device or a pipe gets its bytes immediately.

    A link remains a link, and a replaced file keeps its permissions.

    Raises:
        UsageError: as `check_output`.
        StorageError: it cannot be written.
    """
    from retention.storage import files

    check_output(location, kind)
    place = place_of(location)
    if files.is_remote(place):
        with files.create(place) as sink:
            yield sink
    elif (mode := _mode(place)) is not None and (_is_stream(mode) or _DESCRIPTOR.fullmatch(place)):
        with as_storage_errors(place), _opened(place) as sink:
            yield sink
    else:
        with files.create(os.path.realpath(place)) as sink:
            if mode is not None:
                os.fchmod(sink.fileno(), stat.S_IMODE(mode))
            yield sink


def write_output(location: str, kind: OutputKind, content: bytes) -> None:
    """Write content to a user's place, as `open_output` does."""
    with open_output(location, kind) as sink:
        sink.write(content)


def _mode(place: str) -> int | None:
    """The type and permissions of a local file or of a link's target; None if there is none."""
    try:
        return os.stat(place).st_mode  # noqa: PTH116
    except OSError:
        return None


def _is_stream(mode: int) -> bool:
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _is_one(place: str, kind: OutputKind) -> bool:
    from retention.storage import files

    with files.open_input(place) as source:
        try:
            return kind.recognizes(source)
        except (OSError, ValueError, EOFError, KeyError):
            return False


def _opened(place: str) -> Any:
    """A device or pipe for writing; an inherited descriptor continues at its current position and loses nothing."""
    inherited = _DESCRIPTOR.fullmatch(place)
    if inherited is None:
        return open(place, "wb")  # noqa: PTH123
    sys.stdout.flush()
    number = int(inherited[1]) if inherited[1] else {"stdout": 1, "stderr": 2}[inherited[2]]
    return os.fdopen(os.dup(number), "wb")
