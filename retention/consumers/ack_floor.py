"""A consumer's ack floor after some acks, under each ack policy."""

from __future__ import annotations

import numpy as np

from retention.consumers.ack_events import AckEvents, AckLines
from retention.consumers.ack_gaps import UnseenRuns
from retention.consumers.ack_subject import DELIVERED
from retention.consumers.pending import PendingMessages
from retention.consumers.state import DeliveryPosition

_ANYWHERE = DeliveryPosition(2**63 - 1, 2**63 - 1)
_AT_ONCE = 1 << 12
"""Acks checked together; an ack that is lower in one count and not in the other costs one more check."""


def floor_of_all(floor: DeliveryPosition, acks: AckLines) -> DeliveryPosition:
    """Compute the floor after acks that include all before them (server: processAckMsg, AckAll).

    An ack counts only if it is above the floor in both counts, the consumer's and the stream's. From the floor (4, 40)
    the acks (6, 60), (5, 70), (7, 65) lead to (7, 65): the second is lower in the consumer's count.
    """
    low, high = floor.consumer_seq, floor.stream_seq
    for start in range(0, len(acks), _AT_ONCE):
        consumer_seqs = acks.consumer_seq[start : start + _AT_ONCE]
        seqs = acks.seq[start : start + _AT_ONCE]
        while len(consumer_seqs):
            above = (consumer_seqs > low) & (seqs > high)
            consumer_seqs, seqs = consumer_seqs[above], seqs[above]
            top_consumer_seq = np.maximum.accumulate(np.append(low, consumer_seqs))[:-1]
            top_seq = np.maximum.accumulate(np.append(high, seqs))[:-1]
            back = np.flatnonzero((consumer_seqs > top_consumer_seq) != (seqs > top_seq))
            end = int(back[0]) if len(back) else len(consumer_seqs)
            if end:
                low, high = int(consumer_seqs[:end].max()), int(seqs[:end].max())
            consumer_seqs, seqs = consumer_seqs[end + 1 :], seqs[end + 1 :]
    return DeliveryPosition(low, high)


def floor_of_explicit(
    heard: AckEvents, delivered: DeliveryPosition, waiting: PendingMessages, unseen: UnseenRuns
) -> DeliveryPosition:
    """Compute the floor after acks of single messages (server: moveAckFloor).

    The floor is right below the lowest pending message, once anything below was settled after its delivery. It is at
    the last delivery once nothing is pending, and remains there until a later message is settled; it is below
    unobserved deliveries.

    Args:
        heard: the state before the log, and the log's lines.
        delivered: the last delivery after the log.
        waiting: the messages with pending acks after the log.
        unseen: the unobserved deliveries, after the log.
    """
    state = heard.state
    was_pending = state.pending["seq"].to_numpy()
    if not len(waiting.seq):
        happened = len(was_pending) or state.unseen.num_rows or delivered != state.delivered
        last_seen = unseen.open_ended().first[:1] - 1
        consumer_seq = int(last_seen.min(initial=delivered.consumer_seq))
        return DeliveryPosition(consumer_seq, delivered.stream_seq) if happened else state.ack_floor
    lowest = int(waiting.seq[0])
    below = DeliveryPosition(int(waiting.consumer_seq[0]) - 1, lowest - 1)
    if waiting.is_guess[0]:
        return _higher(state.ack_floor, below)
    if lowest <= state.delivered.stream_seq:
        return _higher(state.ack_floor, below) if was_pending[0] < lowest else state.ack_floor
    return _higher(state.ack_floor, _lower(below, _floor_at_birth(heard, lowest)))


def last_delivery(before: DeliveryPosition, delivery_lines: AckLines) -> DeliveryPosition:
    """The last delivery, given an earlier one and the lines that report deliveries since."""
    consumer_seqs, seqs = delivery_lines.consumer_seq, delivery_lines.seq
    return DeliveryPosition(
        int(consumer_seqs.max(initial=before.consumer_seq)),
        int(seqs.max(initial=before.stream_seq)),
    )


def _floor_at_birth(heard: AckEvents, seq: int) -> DeliveryPosition:
    """The highest possible floor while the new message `seq` is the lowest pending one.

    If the delivery of `seq` was not observed, or a lower message was still pending then, `seq` is the only bound.
    """
    lines, state = heard.lines, heard.state
    births = np.flatnonzero(heard.learned & (lines.seq == seq))
    if lines.verb[births[0]] != DELIVERED:
        return _ANYWHERE
    was_pending = state.pending["seq"].to_numpy()
    was_given = (lines.seq > state.delivered.stream_seq) | np.isin(lines.seq, was_pending)
    rows = np.flatnonzero(heard.settles & was_given & (lines.seq < seq))
    if not len(rows):
        return state.delivered if len(was_pending) else state.ack_floor
    _, firsts = np.unique(lines.seq[rows], return_index=True)
    last = int(rows[firsts].max())
    if last > births[0]:
        return _ANYWHERE
    return last_delivery(state.delivered, lines.take(np.flatnonzero(heard.learned[: last + 1])))


def _higher(first: DeliveryPosition, second: DeliveryPosition) -> DeliveryPosition:
    return DeliveryPosition(
        max(first.consumer_seq, second.consumer_seq), max(first.stream_seq, second.stream_seq)
    )


def _lower(first: DeliveryPosition, second: DeliveryPosition) -> DeliveryPosition:
    return DeliveryPosition(
        min(first.consumer_seq, second.consumer_seq), min(first.stream_seq, second.stream_seq)
    )
