"""How far a consumer's acks reach: where its floor comes to lie under each policy."""

from __future__ import annotations

import numpy as np

from retention.consumers.ack_events import Heard, Lines
from retention.consumers.ack_gaps import Runs
from retention.consumers.ack_subject import DELIVERED
from retention.consumers.pending import Waiting
from retention.consumers.state import Position

_ANYWHERE = Position(2**63 - 1, 2**63 - 1)
_AT_ONCE = 1 << 12
"""Acks that are looked at together; an ack that goes back in one count and not in the other costs one more look."""


def floor_of_all(floor: Position, acks: Lines) -> Position:
    """Where acks that stand for all before them leave the floor (server: processAckMsg, AckAll).

    One counts only where it lies above the floor in both counts, its own reply's and the stream's.
    """
    low, high = floor.consumer_seq, floor.stream_seq
    for start in range(0, len(acks), _AT_ONCE):
        own = acks.consumer_seq[start : start + _AT_ONCE]
        seqs = acks.seq[start : start + _AT_ONCE]
        while len(own):
            above = (own > low) & (seqs > high)
            own, seqs = own[above], seqs[above]
            top_own = np.maximum.accumulate(np.append(low, own))[:-1]
            top_seq = np.maximum.accumulate(np.append(high, seqs))[:-1]
            back = np.flatnonzero((own > top_own) != (seqs > top_seq))
            end = int(back[0]) if len(back) else len(own)
            if end:
                low, high = int(own[:end].max()), int(seqs[:end].max())
            own, seqs = own[end + 1 :], seqs[end + 1 :]
    return Position(low, high)


def floor_of_explicit(
    heard: Heard, delivered: Position, waiting: Waiting, unseen: Runs
) -> Position:
    """Where acks of single messages leave the floor (server: moveAckFloor).

    Right below the lowest that waits, once anything below was settled after its delivery. At the last delivery when
    nothing was left to wait for, and there it stays until one that came later is settled; below what nobody saw.

    Args:
        heard: the state before, and what the log said.
        delivered: the last delivery after it.
        waiting: what waits for its ack after it.
        unseen: the deliveries that nobody saw, after it.
    """
    state = heard.state
    was_pending = state.pending["seq"].to_numpy()
    if not len(waiting.seq):
        happened = len(was_pending) or state.unseen.num_rows or delivered != state.delivered
        seen = unseen.open_ended().first[:1] - 1
        own = int(seen.min(initial=delivered.consumer_seq))
        return Position(own, delivered.stream_seq) if happened else state.ack_floor
    lowest = int(waiting.seq[0])
    below = Position(int(waiting.consumer_seq[0]) - 1, lowest - 1)
    if waiting.is_guess[0]:
        return _higher(state.ack_floor, below)
    if lowest <= state.delivered.stream_seq:
        return _higher(state.ack_floor, below) if was_pending[0] < lowest else state.ack_floor
    return _higher(state.ack_floor, _lower(below, _floor_at_birth(heard, lowest)))


def last_delivery(before: Position, told: Lines) -> Position:
    """The last delivery after one position and what some lines told of."""
    own, seqs = told.consumer_seq, told.seq
    return Position(
        int(own.max(initial=before.consumer_seq)), int(seqs.max(initial=before.stream_seq))
    )


def _floor_at_birth(heard: Heard, seq: int) -> Position:
    """The highest that the floor can lie while the new message `seq` is the lowest that waits.

    Where nobody saw it delivered, or something below still waited when it was, that is right below it: anywhere.
    """
    lines, state = heard.lines, heard.state
    births = np.flatnonzero(heard.learned & (lines.seq == seq))
    if lines.verb[births[0]] != DELIVERED:
        return _ANYWHERE
    was_pending = state.pending["seq"].to_numpy()
    ours = (lines.seq > state.delivered.stream_seq) | np.isin(lines.seq, was_pending)
    rows = np.flatnonzero(heard.settles & ours & (lines.seq < seq))
    if not len(rows):
        return state.delivered if len(was_pending) else state.ack_floor
    _, firsts = np.unique(lines.seq[rows], return_index=True)
    last = int(rows[firsts].max())
    if last > births[0]:
        return _ANYWHERE
    return last_delivery(state.delivered, lines.take(np.flatnonzero(heard.learned[: last + 1])))


def _higher(one: Position, other: Position) -> Position:
    return Position(
        max(one.consumer_seq, other.consumer_seq), max(one.stream_seq, other.stream_seq)
    )


def _lower(one: Position, other: Position) -> Position:
    return Position(
        min(one.consumer_seq, other.consumer_seq), min(one.stream_seq, other.stream_seq)
    )
