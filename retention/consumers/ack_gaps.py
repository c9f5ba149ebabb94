"""Unobserved deliveries, which no line of an ack log reports: their consumer sequences, and their possible messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.consumers.state import OPEN, UNSEEN, ConsumerState
from retention.errors import RefusedError

Numbers = np.ndarray
Mask = np.ndarray
_BELOW_ALL = -(2**63)

MOST_KEPT = 1 << 24
"""Maximum number of messages kept because their delivery is unknown: 400 MB of state."""


@dataclass(frozen=True)
class UnseenRuns:
    """Runs of consumer sequences, ascending and disjoint, in the shape of `UNSEEN`.

    The messages first delivered in a run are between two with known first deliveries, because a consumer's first
    deliveries ascend in both counts::

        consumer sequence   4 . . . 8 . . OPEN      . unseen
        stream sequence    40       90              so 5-7 are above 40 and below 90, later ones above 90
    """

    first: Numbers
    last: Numbers
    after: Numbers
    before: Numbers

    def table(self) -> pa.Table:
        """The runs in shape `UNSEEN`."""
        return pa.table(
            [pa.array(getattr(self, name)) for name in UNSEEN.names],
            schema=UNSEEN,
        )

    def take(self, chosen: Mask) -> UnseenRuns:
        """The runs selected by a mask."""
        return UnseenRuns(*(getattr(self, name)[chosen] for name in UNSEEN.names))

    def open_ended(self) -> UnseenRuns:
        """The runs after which no first delivery is known."""
        return self.take(self.before == OPEN)

    def lasting(self, floor: int) -> UnseenRuns:
        """The runs that may have delivered a message above the stream sequence `floor`."""
        return self.take(self.before - 1 > np.maximum(self.after, floor))

    def cover(self, consumer_seqs: Numbers) -> Mask:
        """Mask of the consumer sequences in a run."""
        return self._at(consumer_seqs) >= 0

    def admit(self, consumer_seqs: Numbers, seqs: Numbers) -> Mask:
        """Mask of the (consumer sequence, stream sequence) pairs that can be a first delivery in one of the runs."""
        at = self._at(consumer_seqs)
        inside = at >= 0
        inside[inside] = (self.after[at[inside]] < seqs[inside]) & (
            seqs[inside] < self.before[at[inside]]
        )
        return inside

    def split(
        self, consumer_seqs: Numbers, first_consumer_seqs: Numbers, first_seqs: Numbers
    ) -> UnseenRuns:
        """Cut known deliveries out of the runs: 5 to 9 without 7 is 5 to 6 and 8 to 9.

        Args:
            consumer_seqs: the known deliveries, ascending, each once.
            first_consumer_seqs: the first deliveries among them, ascending.
            first_seqs: the stream sequences of the same deliveries, ascending.
        """
        cuts = consumer_seqs[self.cover(consumer_seqs)]
        first = np.sort(np.concatenate([self.first, cuts + 1]), kind="stable")
        last = np.sort(np.concatenate([self.last, cuts - 1]), kind="stable")
        first, last = first[first <= last], last[first <= last]
        parent = self._at(first)
        following = np.searchsorted(first_consumer_seqs, first)
        lower = np.concatenate([[0], first_seqs])[following]
        upper = np.concatenate([first_seqs, [OPEN]])[following]
        after = np.maximum(self.after[parent], lower)
        return UnseenRuns(first, last, after, np.minimum(self.before[parent], upper))

    def _at(self, consumer_seqs: Numbers) -> np.ndarray:
        """The index of the run of each consumer sequence; -1: none."""
        at = np.searchsorted(self.first, consumer_seqs, side="right") - 1
        return np.where(consumer_seqs <= np.append(self.last, _BELOW_ALL)[at], at, -1)


def runs_up_to(state: ConsumerState, consumer_seq: int) -> UnseenRuns:
    """The unseen deliveries of a state, with those between its last delivery and a consumer sequence as another run."""
    first, last, after, before = (state.unseen[name].to_numpy() for name in UNSEEN.names)
    known = UnseenRuns(first, last, after, before)
    if consumer_seq <= state.delivered.consumer_seq:
        return known
    is_open = len(before) > 0 and before[-1] == OPEN
    lower = after[-1] if is_open else state.delivered.stream_seq
    more = (state.delivered.consumer_seq + 1, consumer_seq, lower, OPEN)
    columns = [known.first, known.last, known.after, known.before]
    return UnseenRuns(
        *(np.append(column, value) for column, value in zip(columns, more, strict=True))
    )


@dataclass(frozen=True)
class AckGaps:
    """The ranges of a stream in which unseen first deliveries fall, ascending and disjoint, and their possible runs."""

    runs: UnseenRuns
    low: Numbers
    high: Numbers
    starts: np.ndarray
    """The first run of each gap."""
    matching: Numbers | None
    """The sequences that the consumer can have received, ascending; None: any."""

    def cover(self, seqs: Numbers) -> Mask:
        """Mask of the stream sequences in a gap."""
        return self._at(seqs) >= 0

    def seqs_above(self, floor: int) -> Numbers:
        """Every stream sequence of the gaps above `floor` that can have been delivered, ascending.

        Raises:
            RefusedError: these are unknown, and there are more than `MOST_KEPT`.
        """
        if self.matching is not None:
            above = self.matching[np.searchsorted(self.matching, floor, side="right") :]
            return above[self.cover(above)]
        low = np.maximum(self.low, floor + 1)
        counts = np.maximum(self.high - low + 1, 0)
        if counts.sum() > MOST_KEPT:
            raise RefusedError(
                f"the log lacks deliveries, from consumer sequence {self.runs.first[0]} on, which may have been those "
                f"of any of {counts.sum()} messages, from {low[0]} on; say which match the consumer's filters, start "
                "from its state in a backup, or fold the log from its beginning"
            )
        starts = np.cumsum(counts) - counts
        return np.repeat(low - starts, counts) + np.arange(counts.sum())

    def consumer_seqs(self, seqs: Numbers) -> Numbers:
        """Guess the consumer sequence of each stream sequence (ascending) in gaps: the nth in a gap has the gap's nth.

        A gap's last consumer sequence serves for all surplus ones: in a gap of the consumer sequences 5 and 6 the
        stream sequences 41, 42, 43 get 5, 6, 6.
        """
        at = self._at(seqs)
        rank = np.arange(len(seqs)) - np.searchsorted(at, at)
        ends = np.cumsum(self.runs.last - self.runs.first + 1)
        before = ends - (self.runs.last - self.runs.first + 1)
        last_runs = np.append(self.starts[1:], len(ends)) - 1
        nth = np.minimum(before[self.starts[at]] + rank, ends[last_runs[at]] - 1)
        run = np.searchsorted(ends, nth, side="right")
        return self.runs.first[run] + nth - before[run]

    def _at(self, seqs: Numbers) -> np.ndarray:
        at = np.searchsorted(self.low, seqs, side="right") - 1
        return np.where(seqs <= np.append(self.high, _BELOW_ALL)[at], at, -1)


def gaps_of(runs: UnseenRuns, delivered: int, matching: Numbers | None) -> AckGaps:
    """Find the gaps in which the first deliveries of these runs fall, up to stream sequence `delivered`.

    `matching` are the sequences that the consumer can have received, ascending; None: any.
    """
    fits = runs.take((runs.before - 1 > runs.after) & (runs.after < delivered))
    starts = np.flatnonzero(np.diff(fits.after, prepend=-1))
    high = np.minimum(fits.before[starts] - 1, delivered)
    return AckGaps(fits, fits.after[starts] + 1, high, starts, matching)
