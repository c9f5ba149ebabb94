"""Findings in a topic's directory besides its messages: damage, tears, holes, skipped directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Damage:
    """Damaged messages of a log; they are omitted."""

    location: str
    """The path of the log."""
    offset: int
    """The offset of the damaged message, or of the first message of a damaged batch."""
    problem: str
    last: int | None = None
    """The last offset that may be lost with it, if the log does not show the number of messages."""

    @property
    def sentence(self) -> str:
        """The file, the offset or offsets, and the problem."""
        several = self.last is not None and self.last > self.offset
        where = f"offsets {self.offset} to {self.last}" if several else f"offset {self.offset}"
        return f"{self.location}: {where}: {self.problem}"


@dataclass(frozen=True)
class Tear:
    """An active log that ends within a record that the server had not finished."""

    location: str
    offset: int
    """The first missing offset."""
    at: int
    """The byte up to which the log is complete."""

    @property
    def sentence(self) -> str:
        """The file, with the byte and the offset up to which it is read."""
        return f"{self.location}: torn at byte {self.at}: read up to there, before offset {self.offset}"


@dataclass(frozen=True)
class Hole:
    """Missing offsets before existing later ones."""

    location: str
    """The path of the partition's directory, or of the log if the logs of its era have no gaps."""
    first: int
    last: int

    @property
    def sentence(self) -> str:
        """The place, and the first and the last missing offset."""
        return f"{self.location}: offsets {self.first} to {self.last} are missing"


@dataclass(frozen=True)
class Skipped:
    """A directory under `partitions/` that is not a partition, such as the `2.fenced.0` that a server leaves."""

    directory: str

    @property
    def sentence(self) -> str:
        """The directory, and the reason for skipping it."""
        return f"{self.directory}: skipped, for its name is not all digits"


Finding: TypeAlias = Damage | Tear | Hole | Skipped
