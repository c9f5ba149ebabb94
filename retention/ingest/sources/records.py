"""Records of positions in a source, each with the number of the batch that makes it valid by its commit.

A record is written before the commit that adds the rows. If a process is killed in between, no commit ever names its
record, since each run writes under a number of its own.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.subjects import path_name
from retention.errors import DamagedError
from retention.ingest.sources.positions import Position, packed, unpacked
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.crash_points import Step, reached

_DIGITS = 20
_SUFFIX = ".taken"
CUT = "~"
"""The prefix of a directory name that does not spell the source's location."""
_LONGEST = 200
_LAST = "last.json"
_SPREAD = 1 << 20
"""On an object store a run draws its number at random from this many, since two runs may put the same object."""


def _directory_name(location: str) -> str:
    """The name of a source's directory: its location, or a digest if that is too long for a name."""
    name = path_name(location)
    if len(name) <= _LONGEST:
        return name
    return f"{CUT}{hashlib.sha256(location.encode()).hexdigest()}"


@dataclass(frozen=True)
class Records:
    """The records of one source of a stream."""

    directory: str

    @classmethod
    def of(cls, opened: OpenedStream, location: str) -> Records:
        """The records of a source at a location."""
        layout = opened.layout
        return cls(layout.engine_path("ingest", _directory_name(location)))

    def has(self, number: int) -> bool:
        """Whether a record with that number exists."""
        return files.length(self._place(number)) is not None

    def read(self, number: int) -> Position:
        """The position in a record.

        Raises:
            DamagedError: it is missing, or cannot be read.
        """
        place = self._place(number)
        content = files.read_unchanging(place)
        try:
            return unpacked(content or b"")
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DamagedError(
                f"{place}: the record of the rows taken from the source cannot be read ({error}); nothing was read, "
                "so that no row is taken twice; restore it from a copy"
            ) from error

    def write(self, position: Position, after: int | None) -> int:
        """Write a record for a commit to name; return its number, above all existing ones and above `after`."""
        content = packed(position)
        number = max([-1 if after is None else after, *self._numbers()]) + 1
        if files.is_remote(self.directory):
            number += random.randrange(_SPREAD)  # noqa: S311
            files.replace(self._place(number), content)
        else:
            while not files.create_if_absent(self._place(number), content):
                number += 1
        reached(Step.TAKEN_RECORDED)
        return number

    def last(self, generation: int) -> int | None:
        """The number of the last valid record, as noted beside the log; None: there is none.

        Args:
            generation: of the stream's table; records of a dropped table are not valid.

        Raises:
            DamagedError: the note cannot be read.
        """
        content = files.read_bytes(self._last)
        if content is None:
            return None
        try:
            note = parse_json(content)
            return int(note["batch"]) if note["generation"] == generation else None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(
                f"{self._last}: not readable ({error}); nothing was read, so that no row is taken twice; restore it "
                "from a copy"
            ) from error

    def settle(self, number: int, generation: int) -> None:
        """Note the valid record, in case counters restart, and delete the records before its predecessor."""
        files.replace(self._last, json.dumps({"batch": number, "generation": generation}).encode())
        spent = sorted(known for known in self._numbers() if known < number)[:-1]
        files.delete(map(self._place, spent))
        reached(Step.TAKEN_SETTLED)

    def _numbers(self) -> list[int]:
        stems = [
            name.removesuffix(_SUFFIX)
            for name in files.names(self.directory)
            if name.endswith(_SUFFIX)
        ]
        return [int(stem) for stem in stems if stem.isdigit()]

    def _place(self, number: int) -> str:
        return files.join(self.directory, f"{number:0{_DIGITS}d}{_SUFFIX}")

    @property
    def _last(self) -> str:
        return files.join(self.directory, _LAST)
