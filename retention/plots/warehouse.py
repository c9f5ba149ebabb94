"""Warehouses as charts: streams and tables by how long they are behind their policies, and by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retention.core.units import SECOND, format_size
from retention.core.wording import kinds_counted
from retention.plots.charts import Chart, Panel, Rows, Series
from retention.plots.consumers import LONGEST_ROW, MOST_ROWS
from retention.plots.wording import short_instant, short_name


@dataclass(frozen=True)
class Measured:
    """The size and the lag of one stream or table."""

    name: str
    bytes: int
    behind_ns: int | None
    """The time since which a pass could have removed some of it, nanoseconds; None: it is not known."""
    kind: str = "stream"
    """`stream`, `topic` or `table`."""


def warehouse_chart(streams: Sequence[Measured], unread: int, as_of_ns: int) -> Chart:
    """The streams and tables of a warehouse as a chart, the longest behind first, then the largest.

    Args:
        streams: those that could be read.
        unread: the number of those that could not.
        as_of_ns: the instant of their lags, nanoseconds since the epoch.
    """
    order = sorted(streams, key=_urgency)
    shown, rest = order[:MOST_ROWS], order[MOST_ROWS:]
    behind = sum(1 for each in streams if each.behind_ns)
    total = format_size(sum(each.bytes for each in streams))
    headline = (
        f"{kinds_counted([each.kind for each in streams])} ({total}), {behind:,} behind"
        if streams
        else "No streams"
    )
    notes = [
        f"How long each has been behind its policy at {short_instant(as_of_ns)}, and its bytes."
    ]
    if rest:
        size = format_size(sum(each.bytes for each in rest))
        notes.append(f"{len(rest):,} more with {size} are not shown.")
    if unread:
        notes.append(f"{unread:,} could not be read.")
    if not shown:
        return Chart(headline, " ".join(notes[1:]))
    lags = np.array([float(each.behind_ns or 0) for each in shown])
    sizes = np.array([float(each.bytes) for each in shown])
    panels = (
        Panel("behind", (Series("behind", lags),), _lag_text),
        Panel("size", (Series("stored", sizes),), format_size),
    )
    names = tuple(short_name(each.name, LONGEST_ROW) for each in shown)
    return Chart(headline, " ".join(notes), (Rows(names, panels),))


def _urgency(each: Measured) -> tuple[bool, int, int, str]:
    """The sort key of a stream: unknown lags first, then the longest, then the largest."""
    return each.behind_ns is not None, -(each.behind_ns or 0), -each.bytes, each.name


def _lag_text(ns: int) -> str:
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if ns >= length * SECOND:
            return f"{ns // (length * SECOND)}{unit}"
    return "none"
