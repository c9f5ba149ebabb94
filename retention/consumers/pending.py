"""What waits for its ack once a log is folded in, and what of it was delivered again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from retention.consumers.ack_events import Lines
from retention.consumers.ack_gaps import Gaps, Mask, Numbers
from retention.consumers.state import OPEN, PENDING, REDELIVERED, ConsumerState

Settled: TypeAlias = Callable[[Numbers], Mask]
"""Which of some stream sequences are settled."""


@dataclass(frozen=True)
class Waiting:
    """What waits for its ack, ascending by stream sequence."""

    seq: Numbers
    consumer_seq: Numbers
    ts_ns: Numbers
    is_guess: Mask
    """Where nobody saw the first delivery, so that `consumer_seq` is the likeliest."""

    def table(self) -> pa.Table:
        """It in shape `PENDING`."""
        return pa.table([self.seq, self.consumer_seq, self.ts_ns], schema=PENDING)


def waiting_after(state: ConsumerState, told: Lines, gaps: Gaps, settled: Settled) -> Waiting:
    """What waits after some lines.

    It is what waited before, with what the lines say was delivered, without what is settled. To that comes every
    sequence of the gaps: one of them may have been delivered there, so that all are held.

    Args:
        state: before the lines.
        told: the lines that tell of deliveries.
        gaps: where the first deliveries that nobody saw lie, now.
        settled: by the lines.
    """
    seq, own, ts_ns = (state.pending[name].to_numpy() for name in PENDING.names)
    was_known = ts_ns > 0
    new = told.seq > state.delivered.stream_seq
    fresh = told.take((new | np.isin(told.seq, seq)) & ~settled(told.seq))
    stays = was_known & ~settled(seq)
    # What was kept of a delivery that nobody had seen is a guess; a line that tells of it knows better.
    own = np.where(np.isin(seq, fresh.seq[fresh.deliveries == 1]), OPEN, own)
    seqs = np.concatenate([seq[stays], fresh.seq])
    order = np.argsort(seqs, kind="stable")
    starts = np.flatnonzero(np.diff(seqs[order], prepend=-1))
    known = seqs[order[starts]]
    owns = np.concatenate([own[stays], fresh.consumer_seq])[order]
    times = np.concatenate([ts_ns[stays], np.maximum(fresh.ts_ns, 1)])[order]
    held = _held(seq[~was_known], state.delivered.stream_seq, told, gaps)
    held = held[~settled(held) & ~np.isin(held, known)]
    return _together(
        np.concatenate([known, held]),
        np.concatenate([_of_groups(np.minimum, owns, starts), np.zeros_like(held)]),
        np.concatenate([_of_groups(np.maximum, times, starts), np.zeros_like(held)]),
        gaps,
    )


def redelivered_after(
    state: ConsumerState, told: Lines, waiting: Waiting, settled: Settled
) -> pa.Table:
    """What was delivered more than once and is not settled after some lines, shape `REDELIVERED`."""
    seq, count = (state.redelivered[name].to_numpy() for name in REDELIVERED.names)
    again = told.take(told.deliveries > 1)
    again = again.take(np.isin(again.seq, waiting.seq) | np.isin(again.seq, seq))
    seqs = np.concatenate([seq, again.seq])
    counts = np.concatenate([count, again.deliveries - 1])
    order = np.lexsort((-counts, seqs))
    order = order[np.flatnonzero(np.diff(seqs[order], prepend=-1))]
    order = order[~settled(seqs[order])]
    return pa.table([seqs[order], counts[order]], schema=REDELIVERED)


def _held(guesses: Numbers, delivered: int, told: Lines, gaps: Gaps) -> Numbers:
    """The guesses that still lie in gaps, and what of the gaps is new since; not what the lines speak of."""
    more = gaps.seqs_above(delivered)
    return np.concatenate([guesses[gaps.hold(guesses)], more[~np.isin(more, told.seq)]])


def _together(seq: Numbers, consumer_seq: Numbers, ts_ns: Numbers, gaps: Gaps) -> Waiting:
    order = np.argsort(seq)
    seq, consumer_seq, ts_ns = seq[order], consumer_seq[order], ts_ns[order]
    is_guess = gaps.hold(seq)
    consumer_seq[is_guess] = gaps.consumer_seqs(seq[is_guess])
    return Waiting(seq, consumer_seq, ts_ns, is_guess)


def _of_groups(pick: np.ufunc, values: Numbers, starts: np.ndarray) -> Numbers:
    return pick.reduceat(values, starts) if len(starts) else values
