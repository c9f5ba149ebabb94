"""Findings in a topic's directory besides its messages: damage, tears, holes, skipped directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Damage:
    """Messages of a log that are not what the server wrote; they are left out."""

    location: str
    """Path of the log."""
    offset: int
    """Offset of the damaged message, or of the first message of a damaged batch."""
    problem: str
    last: int | None = None
    """Last offset that may be lost with it, where the log does not have their number."""

    @property
    def sentence(self) -> str:
        """The file, the offset or offsets, and the problem."""
        several = self.last is not None and self.last > self.offset
        where = f"offsets {self.offset} to {self.last}" if several else f"offset {self.offset}"
        return f"{self.location}: {where}: {self.problem}"


@dataclass(frozen=True)
class Tear:
    """The active log ends within a record, which the server had not finished."""

    location: str
    offset: int
    """First offset that is not there."""
    at: int
    """Byte up to which the log is whole."""

    @property
    def sentence(self) -> str:
        """The file, and the byte and the offset up to which it is read."""
        return f"{self.location}: torn at byte {self.at}: read up to there, before offset {self.offset}"


@dataclass(frozen=True)
class Hole:
    """Offsets that are missing, though later ones are there."""

    location: str
    """Path of the partition's directory; or of the log, where the logs of its era have no gaps."""
    first: int
    last: int

    @property
    def sentence(self) -> str:
        """The place, and the first and the last missing offset."""
        return f"{self.location}: offsets {self.first} to {self.last} are missing"


@dataclass(frozen=True)
class Skipped:
    """A directory under `partitions/` that is no partition, such as the `2.fenced.0` that a server leaves."""

    directory: str

    @property
    def sentence(self) -> str:
        """The directory, and why it is skipped."""
        return f"{self.directory}: skipped, for its name is not all digits"


Finding: TypeAlias = Damage | Tear | Hole | Skipped
