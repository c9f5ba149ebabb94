"""Report of a reclaim of one stream: deleted files, or those to be deleted, by reason, and kept files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from retention.core.display import Displayed
from retention.core.json_object import JsonObject


@dataclass(frozen=True)
class Amount:
    """Number of files and their bytes on disk."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Add two amounts."""
        return Amount(self.files + other.files, self.bytes + other.bytes)

    def as_json(self) -> dict[str, int]:
        """The amount for reports and the run history."""
        return {"files": self.files, "bytes": self.bytes}


@dataclass(frozen=True, repr=False)
class ReclaimReport(Displayed):
    """The outcome of a reclaim of one stream."""

    stream: str
    grace_ns: int
    """The effective grace period: the longer of the configuration's and the table's, nanoseconds."""
    going: Mapping[str, Amount] = field(default_factory=dict)
    """Reason → the files deleted, or to be deleted."""
    staying: Mapping[str, Amount] = field(default_factory=dict)
    """Hindrance → the dead files that are kept."""
    run: str | None = None
    """The run that deleted data files; None: no run did."""
    is_done: bool = False
    """Whether the reclaim was carried out, not only planned."""
    oldest_ns: int | None = None
    """The time of death of the oldest existing dead file, if the reclaim was only planned; None: there is none."""

    kept_by_holds: Mapping[str, int] | None = None
    """Legal hold → the files past their grace that it keeps; None: none is in effect."""

    @property
    def total(self) -> Amount:
        """All files deleted, or to be deleted."""
        return sum(self.going.values(), Amount())

    def as_json(self) -> JsonObject:
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
            **({} if self.kept_by_holds is None else {"kept_by_holds": dict(self.kept_by_holds)}),
        }
