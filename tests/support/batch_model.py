"""Model of a server's pull consumer, message by message at given instants (consumer.go), and random work on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from retention.consumers.ack_subject import ACK
from tests.support.consumer_model import Consumer, Line

LAST_SEQ = 20


@dataclass
class PullConsumer(Consumer):
    """A consumer that also keeps the time of each pending delivery, and the queue of redeliveries."""

    waits: tuple[int, ...] = (30,)
    max_deliver: int = -1
    max_ack_pending: int = -1
    stream: list[int] = field(default_factory=list)
    """The existing matching messages."""
    since: dict[int, int] = field(default_factory=dict)

    def due_at(self, seq: int) -> int:
        return self.since[seq] + self.wait(seq)

    def wait(self, seq: int) -> int:
        return self.waits[min(self.redelivered.get(seq, 0), len(self.waits) - 1)]

    def fetch(self, count: int, now: int) -> list[tuple[int, int, int]]:
        """Deliver; returns (sequence, consumer sequence, deliveries) of each message."""
        self._check_pending(now)
        given: list[tuple[int, int, int]] = []
        for seq in self._queue(now):
            if seq not in self.stream:
                self._remove(seq)
            elif len(given) < count:
                given.append(self._give(seq, now))
        for seq in self.stream:
            is_full = 0 < self.max_ack_pending <= len(self.pending)
            if seq > self.delivered and len(given) < count and not is_full:
                given.append(self._give(seq, now))
        return given

    def nak(self, seq: int, due: int) -> None:
        if seq in self.pending:
            self.since[seq] = max(due - self.wait(seq), 1)

    def progress(self, seq: int, now: int) -> None:
        if seq in self.pending:
            self.since[seq] = now

    def ack(self, seq: int, own: int) -> None:
        if self.policy != "none" and seq not in self.pending:
            self.redelivered.pop(seq, None)
        self.answer(Line(ACK, 1, seq, own))

    def _queue(self, now: int) -> list[int]:
        late = [seq for seq in self.pending if self.due_at(seq) <= now]
        return sorted(late, key=lambda seq: (self.due_at(seq), seq))

    def _give(self, seq: int, now: int) -> tuple[int, int, int]:
        line = self.deliver(seq)
        self.since[seq] = now
        return seq, line.consumer_seq, line.deliveries

    def _check_pending(self, now: int) -> None:
        for seq in self._queue(now):
            deliveries = self.redelivered.get(seq, 0) + 1
            if 0 < self.max_deliver <= deliveries:
                self._take_off(seq)
                self.redelivered[seq] = deliveries

    def _remove(self, seq: int) -> None:
        self._take_off(seq)
        self.redelivered.pop(seq, None)

    def _take_off(self, seq: int) -> None:
        """The server's moveAckFloor; with `all`, pending messages in any order do not block the floor."""
        was_lowest = seq == min(self.pending)
        del self.pending[seq]
        if not self.pending:
            self.floor = (self.next_own - 1, self.delivered)
        elif was_lowest:
            lowest = min(self.pending)
            own = max(self.pending[lowest][0] - 1, self.floor[0])
            self.floor = (own, max(lowest - 1, self.floor[1]))

    def waiting(self) -> set[int]:
        return self.pending.keys() | self.redelivered.keys()


@dataclass(frozen=True)
class Program:
    """A consumer's settings, and its events: (kind, numbers)."""

    terms: dict[str, Any]
    acts: tuple[tuple[str, tuple[int, ...]], ...]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw fetches, answers to any delivery, messages removed by a limit, and passing time."""
    policy = draw(st.sampled_from(["explicit", "explicit", "all", "none"]))
    seqs = st.lists(st.integers(1, LAST_SEQ + 2), min_size=1, max_size=6).map(tuple)
    acts = st.one_of(
        st.tuples(st.just("fetch"), st.tuples(st.integers(1, 6))),
        st.tuples(st.just("fetch"), st.tuples(st.integers(1, 6))),
        st.tuples(st.just("wait"), st.tuples(st.sampled_from([1, 5, 9, 10, 30]))),
        st.tuples(st.just("ack"), seqs),
        st.tuples(st.just("ack_given"), st.tuples(st.integers(0, 8), st.integers(1, 4))),
        st.tuples(st.just("nak"), st.tuples(st.sampled_from([0, 3, 20]), st.integers(1, LAST_SEQ))),
        st.tuples(st.just("progress"), seqs),
        st.tuples(st.just("lose"), st.tuples(st.integers(1, LAST_SEQ))),
    )
    return Program(
        terms={
            "policy": policy,
            "waits": draw(st.sampled_from([(10,), (10, 20), (5, 5, 40)])),
            "max_deliver": draw(st.sampled_from([-1, 1, 2, 3])),
            "max_ack_pending": draw(st.sampled_from([-1, 2, 5])),
        },
        acts=tuple(draw(st.lists(acts, max_size=40))),
    )
