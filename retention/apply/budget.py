"""The budget of a run over many streams: limits on its time and on the bytes that it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retention.core.units import parse_duration, parse_size
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.apply.compact import CompactionLimits


@dataclass(frozen=True)
class Budget:
    """Limits after which no further stream begins; None: no limit. A stream in progress is finished."""

    max_time_ns: int | None = None
    max_bytes: int | None = None

    @classmethod
    def parsed(cls, max_time: str | None, max_bytes: str | None) -> Budget | None:
        """Parse a duration such as `30m` and a size such as `10GiB`; None: neither is given.

        Raises:
            UsageError: one of them is not valid, or is negative.
        """
        if max_time is None and max_bytes is None:
            return None
        budget = cls(
            None if max_time is None else parse_duration(max_time),
            None if max_bytes is None else parse_size(max_bytes),
        )
        for name, bound in (("--max-time", budget.max_time_ns), ("--max-bytes", budget.max_bytes)):
            if bound is not None and bound < 0:
                raise UsageError(f"{name} is negative: write the run's limit, or leave it out")
        return budget

    def spent(self, time_ns: int, size: int) -> str | None:
        """The option of the limit that this time and number of bytes have reached; None: neither is reached."""
        if self.max_time_ns is not None and time_ns >= self.max_time_ns:
            return "--max-time"
        if self.max_bytes is not None and size >= self.max_bytes:
            return "--max-bytes"
        return None

    def rest(self, time_ns: int, size: int) -> CompactionLimits:
        """The limits for a compaction after this time and number of bytes."""
        from retention.apply.compact import CompactionLimits

        return CompactionLimits(
            None if self.max_bytes is None else max(self.max_bytes - size, 0),
            None if self.max_time_ns is None else max(self.max_time_ns - time_ns, 0),
        )
