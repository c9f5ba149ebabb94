"""One consumer's lines of an ack log: the deliveries that they report, and those that they settle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.consumers.ack_gaps import Mask, Numbers, UnseenRuns
from retention.consumers.ack_subject import SETTLING
from retention.consumers.state import ConsumerState


@dataclass(frozen=True)
class AckLines:
    """One consumer's lines of an ack log, in its order."""

    verb: np.ndarray
    deliveries: Numbers
    seq: Numbers
    consumer_seq: Numbers
    ts_ns: Numbers

    def __len__(self) -> int:
        """Number of lines."""
        return len(self.seq)

    def take(self, chosen: Mask | np.ndarray | slice) -> AckLines:
        """The lines selected by a mask, an index or a slice; no copy if a mask selects all."""
        if isinstance(chosen, np.ndarray) and chosen.dtype == bool and chosen.all():
            return self
        return AckLines(*(getattr(self, name)[chosen] for name in AckLines.__dataclass_fields__))


@dataclass(frozen=True)
class AckEvents:
    """One consumer's lines of an ack log, each with its effect on the consumer."""

    state: ConsumerState
    """State before the lines."""
    lines: AckLines
    learned: Mask
    """Mask of the lines that report a delivery."""
    settles: Mask
    """Mask of the lines that settle a message that had been delivered by then."""
    ignored: Mask
    """Mask of the lines whose message had not been delivered by then."""


def read_events(state: ConsumerState, lines: AckLines, unseen: UnseenRuns) -> AckEvents:
    """Separate the lines that report deliveries from lines about messages not yet delivered.

    A consumer sequence belongs to the message that the first line with it names. A message above the last delivery has
    been delivered if its line's consumer sequence belongs to it, and was not seen with another before. With 39 as the
    last delivery::

        seq            40  41  40  42
        consumer_seq    7   8   9   8
        learned         x   x   x   .    8 belongs to 41, so the line that names 42 is ignored

    Args:
        state: the consumer's state before the lines.
        lines: the consumer's lines, in the log's order.
        unseen: the deliveries unknown to the state, up to the highest consumer sequence of the lines.
    """
    new = lines.seq > state.delivered.stream_seq
    possible = ~new | unseen.open_ended().cover(lines.consumer_seq)
    order = np.flatnonzero(possible)
    order = order[np.argsort(lines.consumer_seq[order], kind="stable")]
    consumer_seqs, seqs = lines.consumer_seq[order], lines.seq[order]
    begins = np.flatnonzero(np.diff(consumer_seqs, prepend=-1))
    owners = np.repeat(seqs[begins], np.diff(np.append(begins, len(consumer_seqs))))
    learned = ~new
    learned[order] |= seqs == owners
    start = state.delivered.stream_seq
    reached = np.maximum.accumulate(np.append(start, np.where(learned, lines.seq, 0)))[1:]
    settles = np.isin(lines.verb, SETTLING) & (lines.seq <= reached)
    return AckEvents(state, lines, learned, settles, lines.seq > reached)
