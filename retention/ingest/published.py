"""The answer to a published batch: an acknowledgement of each message, and the outcome in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.wording import counted
from retention.ingest.append import Appended
from retention.ingest.publish_checks import Answers


@dataclass(frozen=True)
class Ack:
    """The broker's acknowledgement of one message."""

    stream: str
    seq: int
    duplicate: bool
    """Whether its `Nats-Msg-Id` was known: nothing was stored, and `seq` is the original's."""
    val: str | None = field(default=None, kw_only=True)
    """For a counter message: the counter's total after it."""

    def as_json(self) -> JsonObject:
        """The acknowledgement as a server writes it, with `val` only for counters."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, repr=False)
class Published(Displayed):
    """The answer to a batch."""

    stream: str
    answers: Answers
    appended: Appended
    """`duplicate`: the writer's batch was already committed, and there are no acknowledgements."""
    unwanted: int = 0
    """Messages that were acknowledged and not stored, because no consumer wants them."""

    def acks(self) -> Iterator[Ack]:
        """An ack for each accepted message, in the order of the lines."""
        seqs, duplicates = self.answers.seqs.tolist(), self.answers.duplicates.tolist()
        totals, refused = self.answers.totals, {refusal.row for refusal in self.answers.refusals}
        for row, (seq, duplicate) in enumerate(zip(seqs, duplicates, strict=True)):
            if row not in refused:
                yield Ack(self.stream, seq, duplicate, val=totals.get(row))

    def display_fields(self) -> JsonObject:
        """The outcome of the batch, without the arrays of answers."""
        return {
            "stream": self.stream,
            "outcome": self.summary(),
            "duplicates": int(self.answers.duplicates.sum()) or None,
            "refused": len(self.answers.refusals) or None,
            "bytes": self.appended.bytes,
            "version": self.appended.version,
        }

    def summary(self) -> str:
        """The outcome of the batch in a few words."""
        seqs = self.answers.seqs[self.answers.new]
        if not len(seqs):
            return "nothing was new; nothing was written"
        parts = [f"{counted(len(seqs), 'message')} {self._became} {seqs[0]:,} to {seqs[-1]:,}"]
        if self.appended.removed:
            parts.append(f"{self.appended.removed:,} older ones rolled up")
        if self.unwanted:
            parts.append(f"{self.unwanted:,} not stored, because no consumer wants them")
        return "; ".join(parts)

    @property
    def _became(self) -> str:
        return "answered as" if self.unwanted else "stored as"
