"""Sequences that a server removed before a sync could copy them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class MissedRange:
    """A range of sequences of which `count` were removed by the server before they were copied."""

    first: int
    last: int
    count: int

    def __str__(self) -> str:
        return f"{self.first:,} to {self.last:,} ({self.count:,})"


@dataclass(frozen=True)
class Missed:
    """The missed sequences of a run."""

    ranges: Sequence[MissedRange] = ()

    @property
    def count(self) -> int:
        """The number of missed sequences."""
        return sum(each.count for each in self.ranges)

    def __add__(self, other: Missed) -> Missed:
        return Missed((*self.ranges, *other.ranges))

    def __str__(self) -> str:
        shown = [str(each) for each in self.ranges[:_SHOWN]]
        more = len(self.ranges) - len(shown)
        return ", ".join([*shown, *([f"and {more:,} more ranges"] if more else [])])


_SHOWN = 3
NONE_MISSED = Missed()


@dataclass(frozen=True)
class KnownGaps:
    """The gaps of a server's stream at the beginning of a run: nothing could be read there."""

    deleted: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """Ascending sequences."""

    def within(self, first: int, last: int) -> int:
        """The number of them in a range."""
        low, high = np.searchsorted(self.deleted, [first, last + 1])
        return int(high - low)


def missed_in(gaps: np.ndarray, until: int, known: KnownGaps) -> Missed:
    """The sequences up to `until` that were not read, except known gaps.

    Args:
        gaps: the ranges of sequences that were not read, int64, ascending, inclusive, shape (n, 2).
        until: the last sequence that the server has removed.
        known: the gaps before the run.
    """
    missed = []
    for low, high in gaps[gaps[:, 0] <= until].tolist():
        end = min(high, until)
        count = end - low + 1 - known.within(low, end)
        if count:
            missed.append(MissedRange(low, end, count))
    return Missed(tuple(missed))
