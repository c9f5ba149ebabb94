"""Report of a compaction of one stream: its numbers as data and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CompactionReport:
    """The work of a compaction of one stream."""

    stream: str
    runs: tuple[str, ...] = ()
    """The names of its runs in the run history, one for each commit."""
    merges: int = 0
    files_before: int = 0
    """Files that were merged."""
    files_after: int = 0
    """Files in their place."""
    dead_bytes: int = 0
    """Bytes, by the broker's accounting, of deleted rows that have left the files."""
    bytes_read: int = 0
    bytes_written: int = 0
    pending: int = 0
    """Merges that were planned and not carried out: time or bytes were up, or others changed their files first."""
    left: tuple[dict[str, Any], ...] = ()
    """Files that stay as they are, and why."""
    amplification: float | None = None
    """The writes by now of a byte that compactions have met, the one when it came included; None: they met none."""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return vars(self) | {"runs": list(self.runs), "left": list(self.left)}
