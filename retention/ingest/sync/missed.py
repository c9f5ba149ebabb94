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


def missed_in(seqs: np.ndarray, first: int, until: int, known: KnownGaps) -> Missed:
    """The sequences from `first` to `until` that were not read, except known gaps.

    Args:
        seqs: the ascending sequences that were read, all at least `first`.
        first: the first sequence that could be read.
        until: the last sequence that the server has removed, or that was read.
        known: the gaps before the run.
    """
    inside = seqs[seqs <= until]
    edges = np.concatenate([[first - 1], inside, [until + 1]])
    places = np.flatnonzero(np.diff(edges) > 1)
    missed = []
    for low, high in zip(edges[places] + 1, edges[places + 1] - 1, strict=True):
        count = int(high - low + 1) - known.within(int(low), int(high))
        if count:
            missed.append(MissedRange(int(low), int(high), count))
    return Missed(tuple(missed))
