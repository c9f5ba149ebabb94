"""Model of a server's consumer, one message at a time (nats-server: consumer.go), and its observable log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from retention.consumers.ack_events import AckLines
from retention.consumers.ack_subject import (
    ACK,
    ACKS,
    DELIVERED,
    NAK,
    NEXT,
    PROGRESS,
    SETTLING,
    TERM,
    UNKNOWN,
)
from retention.consumers.state import PENDING, REDELIVERED, ConsumerState, DeliveryPosition

VERBS = (ACK, NAK, PROGRESS, TERM, NEXT, UNKNOWN)


@dataclass(frozen=True)
class Line:
    """One line of a log: a verb for a reply."""

    verb: int
    deliveries: int
    seq: int
    consumer_seq: int

    @property
    def ts_ns(self) -> int:
        return 1000 + self.seq


@dataclass
class Consumer:
    """The server's state of a consumer, and its changes by deliveries and answers."""

    policy: str
    start: int = 1
    next_own: int = 1
    delivered: int = 0
    floor: tuple[int, int] = (0, 0)
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    redelivered: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.delivered = self.start - 1
        self.floor = (0, self.delivered)

    def deliver(self, seq: int) -> Line:
        if seq <= self.delivered:
            self.redelivered[seq] = self.redelivered.get(seq, 0) + 1
        line = Line(DELIVERED, self.redelivered.get(seq, 0) + 1, seq, self.next_own)
        self.delivered = max(self.delivered, seq)
        self.next_own += 1
        if self.policy == "none":
            self.floor = (line.consumer_seq, seq)
        elif seq not in self.pending:
            self.pending[seq] = (line.consumer_seq, line.ts_ns)
        return line

    def answer(self, line: Line) -> None:
        if line.verb not in SETTLING or line.seq > self.delivered:
            return
        if self.policy == "explicit":
            self._answer_one(line.seq)
        elif self.policy != "none":
            self._answer_all(line)

    def _answer_one(self, seq: int) -> None:
        self.redelivered.pop(seq, None)
        if seq not in self.pending:
            return
        own, _ = self.pending.pop(seq)
        if not self.pending:
            self.floor = (self.next_own - 1, self.delivered)
        elif own == self.floor[0] + 1:
            lowest = min(self.pending)
            self.floor = (self.pending[lowest][0] - 1, lowest - 1)

    def _answer_all(self, line: Line) -> None:
        if line.consumer_seq <= self.floor[0] or line.seq <= self.floor[1]:
            return
        self.floor = (line.consumer_seq, line.seq)
        for table in (self.pending, self.redelivered):
            for seq in [seq for seq in table if seq <= line.seq]:
                del table[seq]

    def state(self) -> ConsumerState:
        pending = [(seq, *one) for seq, one in sorted(self.pending.items())]
        return ConsumerState(
            delivered=DeliveryPosition(self.next_own - 1, self.delivered),
            ack_floor=DeliveryPosition(*self.floor),
            pending=_table(pending, PENDING),
            redelivered=_table(sorted(self.redelivered.items()), REDELIVERED),
        )


@dataclass(frozen=True)
class World:
    """A consumer after some events, and their log."""

    consumer: Consumer
    log: tuple[Line, ...]
    stream: tuple[int, ...]
    """The sequences that its filter matches."""
    cuts: tuple[int, ...]
    """The positions that divide the log into folds."""


LAST_SEQ = 40


@st.composite
def worlds(draw: st.DrawFn, *, forged: bool) -> World:
    """Draw deliveries, redeliveries and answers in any order; also by old replies, twice, and above the stream's end.

    With `forged`, also answers to undelivered messages, with the consumer sequence of another message.
    """
    stream = sorted(draw(st.sets(st.integers(1, LAST_SEQ), min_size=1, max_size=14)))
    start = draw(st.integers(1, stream[0]))
    consumer = Consumer(draw(st.sampled_from(["explicit", "all", "none"])), start)
    log: list[Line] = []
    to_come = list(stream)
    acts = draw(st.lists(st.integers(0, 9), min_size=len(stream), max_size=45))
    for act in sorted(acts) if draw(st.booleans()) else acts:
        sent = [line for line in log if line.verb == DELIVERED]
        if act <= 3 and to_come:
            log.append(consumer.deliver(to_come.pop(0)))
        elif act <= 5 and consumer.pending:
            log.append(consumer.deliver(draw(st.sampled_from(sorted(consumer.pending)))))
        elif sent:
            one = draw(st.sampled_from(sent))
            verb = draw(st.sampled_from(VERBS if act == 6 else SETTLING))
            lowest = consumer.delivered + 1 if forged else LAST_SEQ + 1
            strange = act == 9 and draw(st.integers(0, 3)) == 0
            seq = draw(st.integers(lowest, LAST_SEQ + 3)) if strange else one.seq
            log.append(Line(verb, one.deliveries, seq, one.consumer_seq))
            consumer.answer(log[-1])
    cuts = draw(st.lists(st.integers(0, len(log)), max_size=6))
    return World(consumer, tuple(log), tuple(stream), tuple(sorted(cuts)))


def lines_of(log: tuple[Line, ...]) -> AckLines:
    """A log in the form of the fold's input."""
    names = ("deliveries", "seq", "consumer_seq", "ts_ns")
    numbers = (np.array([getattr(line, name) for line in log], np.int64) for name in names)
    return AckLines(np.array([line.verb for line in log], np.int8), *numbers)


def acks_of(log: tuple[Line, ...], stream: str, consumer: str) -> pa.Table:
    """A log in shape `ACKS`."""
    rows = [
        {**vars(line), "ts_ns": line.ts_ns, "row": row, "stream": stream, "consumer": consumer}
        for row, line in enumerate(log)
    ]
    return pa.Table.from_pylist(rows, schema=ACKS)


def needs(policy: str, state: ConsumerState, seqs: tuple[int, ...]) -> set[int]:
    """The matching sequences that a consumer with this state needs (server: needAck)."""
    pending = set(state.pending["seq"].to_pylist())
    redelivered = set(state.redelivered["seq"].to_pylist())
    floor, delivered = state.ack_floor.stream_seq, state.delivered.stream_seq
    waits = (
        pending | {seq for seq in seqs if seq > delivered} if policy == "explicit" else set(seqs)
    )
    return {seq for seq in seqs if (seq > floor and seq in waits) or seq in redelivered}


def _table(rows: Sequence[tuple[int, ...]], schema: pa.Schema) -> pa.Table:
    columns = [[row[place] for row in rows] for place in range(len(schema))]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)
