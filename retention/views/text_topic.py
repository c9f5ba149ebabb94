"""Topics as text: their settings, their partitions, and statistics of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from retention.core.units import MICROSECOND, format_duration, format_size
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.inspect.topic_state import SettingsState, TopicState
    from retention.inspect.topic_stats import StatsRow, TopicStats

PARTITION_HEAD = ("PARTITION", "SEGMENTS", "MESSAGES", "SIZE", "FIRST", "LAST", "MISSING", "HELD")
STATS_HEAD = ("STREAM", "TOPIC", *PARTITION_HEAD[:-1])
MOST_PARTITIONS = 12
"""The maximum number of lines about partitions before the rest is counted."""


def settings_text(settings: SettingsState) -> str:
    """The effective settings of a topic, with a note at each that is a default."""
    expiry, cap = settings.message_expiry_us, settings.max_topic_size
    texts = {
        "message_expiry": "never" if expiry is None else format_duration(expiry * MICROSECOND),
        "max_topic_size": "unlimited" if cap is None else format_size(cap),
        "segment_size": format_size(settings.segment_size),
    }
    return ", ".join(
        f"{name} {text}{' (default)' if name in settings.defaulted else ''}"
        for name, text in texts.items()
    )


def topic_text(topic: TopicState) -> list[str]:
    """A topic's settings, and a line for each partition."""
    rows = partition_rows(topic)
    rest = len(rows) - MOST_PARTITIONS
    more = [f"and {counted(rest, 'more partition')}"] if rest > 0 else []
    return [settings_text(topic.settings), *aligned(PARTITION_HEAD, rows[:MOST_PARTITIONS]), *more]


def partition_rows(topic: TopicState) -> list[tuple[str, ...]]:
    """A row for each partition, with the columns of `PARTITION_HEAD`."""
    return [
        (
            str(partition.partition),
            f"{partition.segments:,}",
            f"{partition.messages:,}",
            format_size(partition.bytes),
            f"{partition.first_seq:,}",
            f"{partition.last_seq:,}",
            f"{partition.missing:,}",
            f"{partition.held_back:,}",
        )
        for partition in topic.partitions
    ]


def stats_rows(stats: TopicStats) -> list[tuple[str, ...]]:
    """The rows of all levels, with the columns of `STATS_HEAD`; a cell that does not apply is empty."""
    return [_stats_row(row) for row in stats.rows]


def stats_text(stats: TopicStats) -> list[str]:
    """Statistics of topics as an aligned table, line by line."""
    return aligned(STATS_HEAD, stats_rows(stats))


def _stats_row(row: StatsRow) -> tuple[str, ...]:
    first, last = ("" if seq is None else f"{seq:,}" for seq in (row.first_seq, row.last_seq))
    return (
        "total" if row.level == "total" else row.iggy_stream or "",
        row.topic or ("" if row.level == "partition" else counted(row.topics, "topic")),
        counted(row.partitions, "partition") if row.partition is None else str(row.partition),
        f"{row.segments:,}",
        f"{row.messages:,}",
        format_size(row.bytes),
        first,
        last,
        f"{row.missing:,}",
    )


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table as lines, with all cells right-aligned."""
    table = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
