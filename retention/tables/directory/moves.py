"""Data files moved out of a directory of Parquet files, and back, without ever replacing a file.

The files of a run lie beside the directory, because some readers take every file in it, whatever its name:

    lake/events/day=2026-01-01/part-0.parquet
    lake/_retention/events/<run>/day=2026-01-01/part-0.parquet.removed
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from retention.errors import RefusedError, StalePlanError, StorageError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors
from retention.storage.fsync import sync_directories
from retention.tables.directory.listing import Pin, pin_of
from retention.tables.directory.snapshot import pin_of_add
from retention.tables.records import ChangedFile

_ASIDE = "_retention"
_SUFFIX = ".removed"
"""Ends the names of files aside, so that no reader takes them for Parquet by their names."""
_WITHOUT_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True)
class Move:
    """A data file, with its two places."""

    inside: str
    """Its place in the directory."""
    aside: str
    """Its place once a run has removed it."""
    pin: Pin
    """Its identity when its removal was planned; a copy of the whole lake has other inodes."""

    @property
    def is_unchanged(self) -> bool:
        """Whether the file is in its directory, and the same."""
        return pin_of(self.inside) == self.pin

    @property
    def is_moved(self) -> bool:
        """Whether the file is aside, the same, and its name free or another's."""
        return pin_of(self.aside) == self.pin and not self.is_inside

    @property
    def is_inside(self) -> bool:
        """Whether the file is in its directory, under no other name, or beside its name aside."""
        inside, aside = pin_of(self.inside), pin_of(self.aside)
        return self._is_like(inside) and aside in (None, inside)

    @property
    def is_aside(self) -> bool:
        """Whether the file is aside, or a copy of it."""
        return self._is_like(pin_of(self.aside))

    @property
    def exists(self) -> bool:
        """Whether a file has one of the two names."""
        return os.path.lexists(self.inside) or os.path.lexists(self.aside)

    def _is_like(self, other: Pin | None) -> bool:
        return other is not None and other[:2] == self.pin[:2]


def place_aside(location: str, run: str, path: str) -> str:
    """The place of a file once a run has removed it, by its path in the table at a location."""
    return files.join(_aside_directory(location, run), path + _SUFFIX)


def _aside_directory(location: str, run: str) -> str:
    """The directory with the files that a run removed from the table at a location."""
    parent, _, name = location.rpartition("/")
    return files.join(parent or "/", _ASIDE, name, run)


def moves_of(location: str, run: str, changed: Iterable[ChangedFile]) -> list[Move]:
    """The files that a run removed, or is about to remove."""
    paths = [(unquote(change.before["path"]), pin_of_add(change.before)) for change in changed]
    return [
        Move(files.join(location, path), place_aside(location, run, path), pin)
        for path, pin in paths
    ]


def files_aside(location: str, run: str) -> dict[str, int]:
    """Location → bytes of the files that a run moved out of a table and that are still aside: what a reclaim deletes.

    An undone run has none; those of a run that is not `done` are not to be deleted.
    """
    directory = _aside_directory(location, run)
    places = [files.join(directory, path) for path in files.walk(directory)]
    pins = ((place, pin_of(place)) for place in places if place.endswith(_SUFFIX))
    return {place: pin.size for place, pin in pins if pin is not None}


def move_aside(location: str, moves: Sequence[Move]) -> None:
    """Move files out of their directory; durable on return. `take_back` is the remedy of a failure.

    Raises:
        StalePlanError: a file is gone, or is another by now.
        RefusedError: the directory above is on another file system, or has files of this run already.
        StorageError: a file cannot be moved.
    """
    for move in moves:
        if not move.is_unchanged:
            raise _changed(move)
        if os.path.lexists(move.aside):
            raise RefusedError(
                f"{move.aside}: is there already, and would be replaced; nothing was changed; move it away"
            )
    _refuse_other_device(location)
    try:
        files.move((move.inside, move.aside) for move in moves)
    except StorageError as error:
        if error.errno == errno.EXDEV:
            raise _other_device(location) from error
        raise
    for move in moves:
        if not move.is_moved:
            raise _changed(move)


def move_back(moves: Sequence[Move]) -> None:
    """Move files back to where they were, as far as they are not there; durable on return.

    Raises:
        RefusedError: another file has the name of one by now, or one is gone.
        StorageError: a file cannot be moved.
    """
    refuse_unreturnable(moves)
    for directory in sorted({move.inside.rpartition("/")[0] for move in moves}):
        files.make_directory(directory)
    for move in moves:
        if not move.is_inside:
            _return(move)
    sync_moves(moves)
    for move in moves:
        if move.is_inside and move.is_aside:
            files.delete([move.aside])
            reached(Step.FILE_MOVED)
    sync_moves(moves)
    remove_empty(move.aside for move in moves)


def take_back(moves: Sequence[Move]) -> bool:
    """Move back what a run had moved aside before it failed, written again meanwhile or not; whether that was all.

    Raises:
        StorageError: a file cannot be moved.
    """
    moved = [replace(move, pin=pin) for move in moves if (pin := pin_of(move.aside)) is not None]
    free = [move for move in moved if move.is_inside or not os.path.lexists(move.inside)]
    move_back(free)
    remove_empty(move.aside for move in moves)
    return len(free) == len(moved)


def refuse_unreturnable(moves: Sequence[Move]) -> None:
    """Refuse to move files back if one is gone, or has lost its name to another.

    Raises:
        RefusedError: names the first.
    """
    for move in moves:
        if move.is_inside:
            continue
        if os.path.lexists(move.inside):
            raise _taken(move)
        if not move.is_aside:
            raise RefusedError(
                f"{move.aside}: this file is gone, as after reclaim, or is another by now, so that it cannot be "
                "brought back; nothing was changed; restore the rows from a copy"
            )


def sync_moves(moves: Sequence[Move]) -> None:
    """Make moves durable, those of a killed process included."""
    directories = {
        place.rpartition("/")[0] for move in moves for place in (move.inside, move.aside)
    }
    present: set[str] = set()
    for directory in directories:
        with as_storage_errors(directory):
            present |= {directory} if Path(directory).is_dir() else set()
    sync_directories(present)


def _return(move: Move) -> None:
    """Give a file its old name beside the other, unless another file has it."""
    with as_storage_errors(move.inside, FileExistsError):
        try:
            os.link(move.aside, move.inside)
        except FileExistsError as error:
            raise _taken(move) from error
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            _rename(move)
    reached(Step.REMOVED_FILE_LINKED)


def _rename(move: Move) -> None:
    """Move a file back where the file system, or its owner, allows no second name."""
    if os.path.lexists(move.inside):
        raise _taken(move)
    files.move([(move.aside, move.inside)])


def remove_empty(aside: Iterable[str]) -> None:
    """Remove the directories of files that were aside, as far as they are empty by now."""
    emptied = {Path(place).parent for place in aside}
    emptied |= {above for directory in emptied for above in directory.parents}
    for directory in sorted(emptied, key=lambda each: len(each.parts), reverse=True):
        if _ASIDE in directory.parts:
            with suppress(OSError):
                directory.rmdir()


def _taken(move: Move) -> RefusedError:
    return RefusedError(
        f"{move.inside}: another file has this name by now, and would be replaced; it was not changed; move it away, "
        "and try again"
    )


def _changed(move: Move) -> StalePlanError:
    return StalePlanError(
        f"{move.inside}: this file is gone, or was written again since the plan was made; nothing was changed; plan "
        "again"
    )


def _refuse_other_device(location: str) -> None:
    with as_storage_errors(location):
        above = Path(location).parent
        if Path(location).stat().st_dev != above.stat().st_dev:
            raise _other_device(location)


def _other_device(location: str) -> RefusedError:
    return RefusedError(
        f"{location}: the directory above it is on another file system, so that files cannot be moved aside in one "
        "step; nothing was changed; move the table one directory deeper"
    )
