"""Measures of a stream for monitoring: its size and lag, small files, and what waits on the disk for a reclaim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from retention.apply.compact import show_compaction
from retention.apply.reclaim.report import Amount
from retention.apply.reclaim.run import plan_reclaim
from retention.context.context import OpenedStream
from retention.context.ownership import is_unlisted
from retention.core.units import SECOND
from retention.inspect.lag import lag_and_files


@dataclass(frozen=True)
class Measures:
    """The state of a stream in numbers, all from metadata."""

    lag_seconds: float | None
    """The time by which it is behind its policy; None: the next pass is refused, or it has none."""
    small_files: int
    """The files that a compaction would merge."""
    due_bytes: int
    """The length of dead files that a reclaim would delete."""
    waiting_bytes: int
    """The length of dead files that stay, most of them until the grace is over."""
    messages: int
    bytes: int
    """The bytes of the messages, as the broker counts them."""
    oldest_dead_seconds: float
    """The time since the oldest dead file on the disk died; 0: there is none."""
    rules: Sequence[str]
    """The rules by which passes may remove messages."""


def measure(opened: OpenedStream, as_of_ns: int) -> Measures:
    """Measure a stream or topic.

    Raises:
        RetentionError: it cannot be read, or not all of it.
    """
    lag, live = lag_and_files(opened, as_of_ns)
    if is_unlisted(opened):
        lag = None
    reclaim = plan_reclaim(opened)
    return Measures(
        None if lag is None else lag.behind_ns(as_of_ns) / SECOND,
        sum(merge.files.num_rows for merge in show_compaction(opened).merges),
        reclaim.total.bytes,
        sum(reclaim.staying.values(), Amount()).bytes,
        pc.sum(live["messages"], min_count=0).as_py(),
        pc.sum(live["bytes"], min_count=0).as_py(),
        0.0 if reclaim.oldest_ns is None else max(as_of_ns - reclaim.oldest_ns, 0) / SECOND,
        opened.config.policy().rules,
    )
