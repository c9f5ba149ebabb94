"""Report of a reclaim of one stream: what went, or would go, by reason, and what stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Amount:
    """Files and their bytes on the disk."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Add two amounts."""
        return Amount(self.files + other.files, self.bytes + other.bytes)

    def as_json(self) -> dict[str, int]:
        """The amount for reports and the run history."""
        return {"files": self.files, "bytes": self.bytes}


@dataclass(frozen=True)
class ReclaimReport:
    """The outcome of a reclaim of one stream."""

    stream: str
    grace_ns: int
    """The grace that held: the longer one of the configuration's and the table's, nanoseconds."""
    going: Mapping[str, Amount] = field(default_factory=dict)
    """Reason → the files that went, or would go."""
    staying: Mapping[str, Amount] = field(default_factory=dict)
    """Hindrance → the dead files that stay."""
    run: str | None = None
    """The run that deleted data files; None: none did."""
    is_done: bool = False
    """Whether anything was to be deleted for real."""
    oldest_ns: int | None = None
    """The death of the oldest dead file that is there, if the reclaim was only planned; None: there is none."""

    @property
    def total(self) -> Amount:
        """Everything that went, or would go."""
        return sum(self.going.values(), Amount())

    def as_json(self) -> dict[str, Any]:
        """The report's entry in the JSON output."""
        total = self.total
        return {
            "stream": self.stream,
            "run": self.run,
            "done": self.is_done,
            "grace_ns": self.grace_ns,
            "files": total.files,
            "bytes": total.bytes,
            "by_reason": {name: amount.as_json() for name, amount in self.going.items()},
            "staying": {name: amount.as_json() for name, amount in self.staying.items()},
        }
