"""Damaged checkpoints of a Delta log, by name: a checkpoint is not needed if the log still has its entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.errors import first_line
from retention.stores.delta import internals
from retention.stores.layout import Layout


@dataclass(frozen=True)
class BrokenCheckpoint:
    """A checkpoint that readers of the table cannot read."""

    version: int
    damaged: str
    """The location of the unreadable or missing file."""
    reason: str
    named: str
    """The location of the file by which readers find the checkpoint."""


def damaged_log(layout: Layout, error: Exception) -> DamagedError:
    """The error for a log that cannot be opened; names the damaged checkpoint, if there is one.

    Args:
        layout: the stream's layout.
        error: the error from opening the table.
    """
    entries, checkpoints = internals.log_files(layout.messages)
    damaged = [
        broken
        for version, names in checkpoints.items()
        if (broken := _broken(layout, version, names)) is not None
    ]
    whole = set(checkpoints) - {broken.version for broken in damaged}
    hint = _misleading_hint(layout, whole)
    newest = max(whole, default=-1)
    if damaged or hint is not None:
        needed = range(newest + 1, max(entries, default=-1) + 1)
        return _of_checkpoints(layout, damaged, hint, sorted(set(needed) - set(entries)))
    for version in (number for number in entries if number > newest):
        place = internals.entry_place(layout.messages, version)
        reason = _damage(place)
        if reason is not None:
            return DamagedError(
                f"{place}: this entry of the log of stream {layout.stream} cannot be read ({reason}); nothing was "
                "changed; restore it from a copy"
            )
    return DamagedError(
        f"{layout.messages}: the Delta log of stream {layout.stream} cannot be read "
        f"({first_line(error)}); nothing was changed; restore the log from a copy"
    )


def _of_checkpoints(
    layout: Layout, damaged: Sequence[BrokenCheckpoint], hint: str | None, gone: Sequence[int]
) -> DamagedError:
    """The error for unreadable checkpoints, and for removed entries that only they contain."""
    spent = [broken.named for broken in damaged] + ([] if hint is None else [hint])
    first = (
        damaged[0] if damaged else BrokenCheckpoint(-1, spent[0], "it names none that is there", "")
    )
    what = f"{first.damaged}: this checkpoint of the log of stream {layout.stream} cannot be read ({first.reason})"
    if gone:
        return DamagedError(
            f"{what}, and entries that it replaces are missing, that of version {gone[0]} the first; nothing was "
            "changed; restore the file from a copy"
        )
    return DamagedError(
        f"{what}, but the log has every entry that it replaces, so nothing is lost; nothing was changed; delete "
        f"{' and '.join(spent)}"
    )


def _broken(layout: Layout, version: int, names: Sequence[str]) -> BrokenCheckpoint | None:
    """The first unreadable part of a checkpoint; None if the checkpoint is complete."""
    directory = internals.log_directory(layout.messages)
    for name in sorted(names):
        place = files.join(directory, name)
        for damaged in (place, *_sidecars(directory, place)):
            reason = _damage(damaged)
            if reason is not None:
                return BrokenCheckpoint(version, damaged, reason, place)
    missing = internals.missing_part(names)
    if missing is None:
        return None
    named = files.join(directory, sorted(names)[0])
    return BrokenCheckpoint(version, files.join(directory, missing), "it is missing", named)


def _damage(place: str) -> str | None:
    """The reason why a file of a checkpoint cannot be read; None if it can be."""
    import pyarrow.parquet as pq

    try:
        if place.endswith(".parquet"):
            with files.open_input(place) as source:
                pq.ParquetFile(source).read()
        else:
            content = files.read_bytes(place)
            if content == b"":
                return "it is empty, and what it committed is lost"
            list(internals.actions(content or b"\n"))
    except FileNotFoundError:
        return "it is missing"
    except (OSError, ValueError, pa.ArrowException) as error:
        return first_line(error)
    return None


def _sidecars(directory: str, place: str) -> list[str]:
    """The locations of a V2 checkpoint's sidecar files; empty if the checkpoint cannot be read."""
    try:
        paths = internals.sidecars_of(place)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return []
    return [path if "/" in path else files.join(directory, "_sidecars", path) for path in paths]


def _misleading_hint(layout: Layout, whole: set[int]) -> str | None:
    """The location of `_last_checkpoint` if it names a missing or damaged checkpoint."""
    place = files.join(internals.log_directory(layout.messages), internals.LAST_CHECKPOINT)
    content = files.read_bytes(place)
    if content is None:
        return None
    try:
        version = parse_json(content)["version"]
    except (ValueError, KeyError, TypeError):
        return None
    return None if version in whole else place
