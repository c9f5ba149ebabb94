"""Measures of a stream for monitoring: its lag, small files, and what waits on the disk for a reclaim."""

from __future__ import annotations

from dataclasses import dataclass

from retention.apply.compact import show_compaction
from retention.apply.reclaim.report import Amount
from retention.apply.reclaim.run import plan_reclaim
from retention.context.context import OpenedStream
from retention.core.units import SECOND
from retention.inspect.lag import lag_of


@dataclass(frozen=True)
class Measures:
    """The state of a stream in numbers, all from metadata."""

    lag_seconds: float | None
    """The time by which it is behind its policy; None: the next pass is refused, so that it is not known."""
    small_files: int
    """The files that a compaction would merge."""
    due_bytes: int
    """The length of dead files that a reclaim would delete."""
    waiting_bytes: int
    """The length of dead files that stay, most of them until the grace is over."""


def measure(opened: OpenedStream, as_of_ns: int) -> Measures:
    """Measure a stream or topic.

    Raises:
        RetentionError: it cannot be read, or not all of it.
    """
    lag = lag_of(opened, as_of_ns)
    reclaim = plan_reclaim(opened)
    return Measures(
        None if lag is None else lag.behind_ns(as_of_ns) / SECOND,
        sum(merge.files.num_rows for merge in show_compaction(opened).merges),
        reclaim.total.bytes,
        sum(reclaim.staying.values(), Amount()).bytes,
    )
