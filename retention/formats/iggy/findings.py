"""What reading a topic's directory brings to light besides its messages: damage, tears, holes, skipped directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Damage:
    """Messages of a log that are not what the server wrote; they are left out."""

    location: str
    """Of the log."""
    offset: int
    """Of the damaged message, or of the first message of a damaged batch."""
    problem: str
    last: int | None = None
    """The last offset that may be gone with it, where the log does not tell how many are."""

    @property
    def sentence(self) -> str:
        """Which file, which offset, and what is wrong."""
        several = self.last is not None and self.last > self.offset
        where = f"offsets {self.offset} to {self.last}" if several else f"offset {self.offset}"
        return f"{self.location}: {where}: {self.problem}"


@dataclass(frozen=True)
class Tear:
    """The active log ends within a record, which the server had not finished."""

    location: str
    offset: int
    """The first one that is not there."""
    at: int
    """The byte up to which the log is whole."""

    @property
    def sentence(self) -> str:
        """Which file, and up to where it is read."""
        return f"{self.location}: torn at byte {self.at}: read up to there, before offset {self.offset}"


@dataclass(frozen=True)
class Hole:
    """Offsets that nothing holds, though later ones are there."""

    location: str
    """Of the partition's directory, or of the log, where all logs of its era go on without a gap."""
    first: int
    last: int

    @property
    def sentence(self) -> str:
        """Where, and the first and the last missing offset."""
        return f"{self.location}: offsets {self.first} to {self.last} are missing"


@dataclass(frozen=True)
class Skipped:
    """A directory under `partitions/` that is no partition, such as the `2.fenced.0` that a server leaves."""

    directory: str

    @property
    def sentence(self) -> str:
        """Which directory."""
        return f"{self.directory}: skipped, for its name is not all digits"


Finding: TypeAlias = Damage | Tear | Hole | Skipped
