"""The report of a compaction of one stream: its numbers as data and as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.json_object import JsonObject


@dataclass(frozen=True)
class CompactionReport:
    """The work of a compaction of one stream."""

    stream: str
    runs: tuple[str, ...] = ()
    """The names of its runs in the run history, one per commit."""
    merges: int = 0
    files_before: int = 0
    """The number of merged files."""
    files_after: int = 0
    """The number of files that replaced them."""
    bytes_read: int = 0
    bytes_written: int = 0
    pending: int = 0
    """Planned merges that were not executed: time or bytes ran out, or another process changed their files first."""
    amplification: float | None = None
    """The average number of writes so far of a byte found by compactions, its first included; None without any."""
    seconds: float = 0.0

    def as_json(self) -> JsonObject:
        """The report as JSON values; `dead_bytes` and `left`, of earlier builds, are always empty."""
        return vars(self) | {"runs": list(self.runs), "dead_bytes": 0, "left": []}
