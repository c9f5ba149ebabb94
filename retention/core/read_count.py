"""The cost of planning: data files opened, and bytes read from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadCount:
    """Data files opened and bytes read from them."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: ReadCount) -> ReadCount:
        """Add two counts."""
        return ReadCount(self.files + other.files, self.bytes + other.bytes)
