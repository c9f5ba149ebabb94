"""What the lines of an ack log say of one consumer: which deliveries they tell of, and which of them settle any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from retention.consumers.ack_gaps import Mask, Numbers, Runs
from retention.consumers.ack_subject import SETTLING
from retention.consumers.state import ConsumerState


@dataclass(frozen=True)
class Lines:
    """One consumer's lines of an ack log, in its order."""

    verb: npt.NDArray[np.int8]
    deliveries: Numbers
    seq: Numbers
    consumer_seq: Numbers
    ts_ns: Numbers

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self.seq)

    def take(self, chosen: Mask | npt.NDArray[np.intp] | slice) -> Lines:
        """The lines that a mask, an index or a slice chooses."""
        return Lines(*(getattr(self, name)[chosen] for name in Lines.__dataclass_fields__))


@dataclass(frozen=True)
class Heard:
    """What a log says of one consumer, line by line."""

    state: ConsumerState
    """Before the lines."""
    lines: Lines
    learned: Mask
    """Which lines tell of a delivery."""
    settles: Mask
    """Which lines settle what had been delivered by then."""
    ignored: Mask
    """Which lines speak of what had not been delivered by then."""


def listen(state: ConsumerState, lines: Lines, unseen: Runs) -> Heard:
    """Tell the lines that speak of deliveries from those that speak of what had not been delivered.

    A consumer sequence belongs to the message that the first line with it names. A message above the last delivery has
    been delivered if its line's consumer sequence is its own, and was not seen with another before.

    Args:
        state: before the lines.
        lines: in the log's order.
        unseen: the deliveries that the state does not know, up to the highest consumer sequence of the lines.
    """
    new = lines.seq > state.delivered.stream_seq
    possible = ~new | unseen.open_ended().hold(lines.consumer_seq)
    order = np.flatnonzero(possible)
    order = order[np.argsort(lines.consumer_seq[order], kind="stable")]
    own, seqs = lines.consumer_seq[order], lines.seq[order]
    begins = np.flatnonzero(np.diff(own, prepend=-1))
    owners = np.repeat(seqs[begins], np.diff(np.append(begins, len(own))))
    learned = ~new
    learned[order] |= seqs == owners
    start = state.delivered.stream_seq
    reached = np.maximum.accumulate(np.append(start, np.where(learned, lines.seq, 0)))[1:]
    settles = np.isin(lines.verb, SETTLING) & (lines.seq <= reached)
    return Heard(state, lines, learned, settles, lines.seq > reached)
