"""Checkpoints of the streaming queries by which earlier releases took a source, read for their position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from retention.errors import RefusedError
from retention.storage import files
from retention.storage.checksum import parse_json

_DOUBTS = (ValueError, KeyError, TypeError, AttributeError, IndexError)
_COMPACT = ".compact"


@dataclass(frozen=True)
class SparkCheckpoint:
    """The directory of a query's checkpoint.

    Raises:
        RefusedError: by every method, if the checkpoint is unreadable.
    """

    directory: str

    def exists(self) -> bool:
        """Whether a query was ever started with it."""
        return files.read_bytes(files.join(self.directory, "metadata")) is not None

    def last_batch(self) -> int | None:
        """The number of the query's last finished batch; None: it finished none."""
        names = files.names(files.join(self.directory, "commits"))
        return max((int(name) for name in names if name.isdigit()), default=None)

    def taken_files(self, batch: int) -> dict[str, int]:
        """Path or URI → modification time in milliseconds of each file taken by batches up to this one."""
        until = self._offset(batch, "logOffset")
        try:
            return dict(self._entries(int(until["logOffset"])))
        except _DOUBTS as error:
            raise self._unreadable(batch, repr(error)) from error

    def taken_version(self, batch: int) -> tuple[str, int]:
        """The id of the Delta table, and its last version taken completely by batches up to this one."""
        offset = self._offset(batch, "reservoirVersion")
        if offset["index"] >= 0:
            raise RefusedError(
                f"{self.directory}: an earlier release stopped in the middle of version {offset['reservoirVersion']} "
                "of the source, and its checkpoint does not have the exact position; nothing was read, so that no row "
                "is taken twice; let that release finish its run once, then continue with this one"
            )
        return str(offset["reservoirId"]), int(offset["reservoirVersion"]) - 1

    def _offset(self, batch: int, needed: str) -> Mapping[str, Any]:
        """The source's offset after a batch."""
        content = files.read_bytes(files.join(self.directory, "offsets", str(batch)))
        try:
            if content is None:
                raise ValueError("it is missing")
            offset = parse_json(content.splitlines()[2])
            offset[needed]
        except _DOUBTS as error:
            raise self._unreadable(batch, str(error)) from error
        return dict(offset)

    def _entries(self, until: int) -> Iterator[tuple[str, int]]:
        """The files in the source's own log, up to one of its batches."""
        directory = files.join(self.directory, "sources", "0")
        numbers = {name.removesuffix(_COMPACT): name for name in files.names(directory)}
        there = sorted(int(stem) for stem in numbers if stem.isdigit() and int(stem) <= until)
        compacted = [number for number in there if numbers[str(number)].endswith(_COMPACT)]
        first = compacted[-1] if compacted else 0
        wanted = range(first, until + 1)
        if not {*wanted} <= {*there}:
            raise ValueError(f"sources/0 has no batch {min({*wanted} - {*there})}")
        for number in wanted:
            content = files.read_bytes(files.join(directory, numbers[str(number)])) or b""
            for line in content.splitlines()[1:]:
                entry = parse_json(line)
                yield _place(entry["path"]), int(entry["timestamp"])

    def _unreadable(self, batch: int, why: str) -> RefusedError:
        return RefusedError(
            f"{self.directory}: the checkpoint of an earlier release does not show what batch {batch} took ({why}); "
            "nothing was read, so that no row is taken twice; restore that folder from a copy, or append the missing "
            "rows from a table that holds only them"
        )


def _place(uri: str) -> str:
    """A file's location as the engine spells it, from an encoded URI."""
    place = unquote(uri)
    if place.startswith("file:"):
        return "/" + place.removeprefix("file:").lstrip("/")
    return place.replace("s3a://", "s3://", 1)
