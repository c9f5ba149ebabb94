"""The work of contenders: the size of the tables, and the pieces of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STREAM = "BENCH"
FIRST_TS_NS = 1_735_689_600 * 10**9
"""2025-01-01T00:00:00Z."""
STEP_NS = 10_000_000
"""One message every 10 ms."""
NAMES = ("drop", "cut", "last", "last-many", "bytes")
TTL_NAMES = ("ttl", "ttl-grouped", "ttl-drop")
"""The pieces of work of `benchmarks.ttl`."""
COMPACT_NAMES = ("compact-small", "compact-hollow")
"""The pieces of work of `benchmarks.compaction`."""
ALL_NAMES = (*NAMES, *TTL_NAMES, *COMPACT_NAMES)


@dataclass(frozen=True)
class Size:
    """The size of the tables."""

    messages: int
    """Messages per segment."""
    segments: int
    subjects: int
    many_subjects: int

    @property
    def total(self) -> int:
        """Messages of a table."""
        return self.messages * self.segments


@dataclass(frozen=True)
class Task:
    """One piece of work.

    `age`: remove messages with `ts_ns <= limit`. `last`: remove all except the last message of each
    subject. `bytes`: remove the oldest until the sum of `size` is at most `limit`. `ttl`: remove
    messages with `deadline_ns <= limit`. `small`: merge the files of each segment, by hand up to
    `limit` bytes. `hollow`: merge the files of all segments.
    """

    name: str
    kind: Literal["age", "last", "bytes", "ttl", "small", "hollow"]
    table: str
    """The directory of the source warehouse."""
    limit: int
    title: str
    layout: Literal["sequence", "deadline"] = "sequence"
    """The stream's `layout`."""

    @property
    def column(self) -> str:
        """The column compared with `limit`, for `age` and `ttl`: messages up to the limit are removed."""
        return "deadline_ns" if self.kind == "ttl" else "ts_ns"


def task(name: str, size: Size, total_bytes: int) -> Task:
    """The piece of work of that name on tables of that size; a table has `total_bytes` by `size`."""
    dropped = size.segments * 3 // 4
    edge, inside = dropped * size.messages, dropped * size.messages + size.messages // 2
    match name:
        case "drop":
            title = f"drop {dropped} of {size.segments} segments"
            return Task(name, "age", "few", _just_before(edge), title)
        case "cut":
            title = f"drop {dropped} of {size.segments} segments and half of the next"
            return Task(name, "age", "few", _just_before(inside), title)
        case "last":
            title = f"keep the last message of each of {size.subjects:,} subjects"
            return Task(name, "last", "few", 1, title)
        case "last-many":
            title = f"keep the last message of each of {size.many_subjects:,} subjects"
            return Task(name, "last", "many", 1, title)
        case "bytes":
            return Task(name, "bytes", "few", total_bytes // 4, "keep the newest 25 % of the bytes")
        case _:
            raise ValueError(
                f"{name}: there is no such piece of work; there are {', '.join(NAMES)}"
            )


def _just_before(message: int) -> int:
    return FIRST_TS_NS + message * STEP_NS - STEP_NS // 2
