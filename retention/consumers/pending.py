"""Messages with pending acks once a log is folded in, and their redeliveries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from retention.consumers.ack_events import AckLines
from retention.consumers.ack_gaps import AckGaps, Mask, Numbers
from retention.consumers.state import OPEN, PENDING, REDELIVERED, ConsumerState

Settled: TypeAlias = Callable[[Numbers], Mask]
"""Function from stream sequences to the mask of those that are settled."""


@dataclass(frozen=True)
class PendingMessages:
    """Messages with pending acks, ascending by stream sequence; arrays of equal length."""

    seq: Numbers
    consumer_seq: Numbers
    ts_ns: Numbers
    is_guess: Mask
    """Mask of the messages whose first delivery was not observed, so that `consumer_seq` is the likeliest."""

    def table(self) -> pa.Table:
        """The messages in shape `PENDING`."""
        return pa.table([self.seq, self.consumer_seq, self.ts_ns], schema=PENDING)


def pending_after(
    state: ConsumerState, delivery_lines: AckLines, gaps: AckGaps, settled: Settled
) -> PendingMessages:
    """Compute the messages pending after some lines.

    They are the messages pending before and those that the lines report as delivered, without the settled ones; and
    every sequence of the gaps: any of them may have been delivered, so all are kept.

    Args:
        state: the state before the lines.
        delivery_lines: the lines that report deliveries.
        gaps: the gaps of unobserved first deliveries, after the lines.
        settled: the messages that the lines settle.
    """
    seq, consumer_seq, ts_ns = (state.pending[name].to_numpy() for name in PENDING.names)
    was_known = ts_ns > 0
    new = delivery_lines.seq > state.delivered.stream_seq
    fresh = delivery_lines.take(
        (new | np.isin(delivery_lines.seq, seq)) & ~settled(delivery_lines.seq)
    )
    stays = was_known & ~settled(seq)
    # The consumer sequence of an unobserved delivery is a guess; a line that reports the delivery replaces it.
    consumer_seq = np.where(np.isin(seq, fresh.seq[fresh.deliveries == 1]), OPEN, consumer_seq)
    seqs = np.concatenate([seq[stays], fresh.seq])
    order = np.argsort(seqs, kind="stable")
    starts = np.flatnonzero(np.diff(seqs[order], prepend=-1))
    known = seqs[order[starts]]
    consumer_seqs = np.concatenate([consumer_seq[stays], fresh.consumer_seq])[order]
    times = np.concatenate([ts_ns[stays], np.maximum(fresh.ts_ns, 1)])[order]
    held = _held(seq[~was_known], state.delivered.stream_seq, delivery_lines, gaps)
    held = held[~settled(held) & ~np.isin(held, known)]
    return _together(
        np.concatenate([known, held]),
        np.concatenate([_of_groups(np.minimum, consumer_seqs, starts), np.zeros_like(held)]),
        np.concatenate([_of_groups(np.maximum, times, starts), np.zeros_like(held)]),
        gaps,
    )


def redelivered_after(
    state: ConsumerState, delivery_lines: AckLines, waiting: PendingMessages, settled: Settled
) -> pa.Table:
    """Messages delivered more than once and not settled after some lines, shape `REDELIVERED`."""
    seq, count = (state.redelivered[name].to_numpy() for name in REDELIVERED.names)
    again = delivery_lines.take(delivery_lines.deliveries > 1)
    again = again.take(np.isin(again.seq, waiting.seq) | np.isin(again.seq, seq))
    seqs = np.concatenate([seq, again.seq])
    counts = np.concatenate([count, again.deliveries - 1])
    order = np.lexsort((-counts, seqs))
    order = order[np.flatnonzero(np.diff(seqs[order], prepend=-1))]
    order = order[~settled(seqs[order])]
    return pa.table([seqs[order], counts[order]], schema=REDELIVERED)


def _held(guesses: Numbers, delivered: int, delivery_lines: AckLines, gaps: AckGaps) -> Numbers:
    """The guesses that still fall in gaps, and the unreported sequences of gaps above the last delivery."""
    more = gaps.seqs_above(delivered)
    return np.concatenate([guesses[gaps.cover(guesses)], more[~np.isin(more, delivery_lines.seq)]])


def _together(
    seq: Numbers, consumer_seq: Numbers, ts_ns: Numbers, gaps: AckGaps
) -> PendingMessages:
    order = np.argsort(seq)
    seq, consumer_seq, ts_ns = seq[order], consumer_seq[order], ts_ns[order]
    is_guess = gaps.cover(seq)
    consumer_seq[is_guess] = gaps.consumer_seqs(seq[is_guess])
    return PendingMessages(seq, consumer_seq, ts_ns, is_guess)


def _of_groups(pick: np.ufunc, values: Numbers, starts: np.ndarray) -> Numbers:
    return pick.reduceat(values, starts) if len(starts) else values
