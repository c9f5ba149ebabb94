from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.config.stream import StreamConfig
from retention.consumers.ack_result import AnswerResult
from retention.consumers.delivery_state import (
    DeliveryTerms,
    deliver,
    drop_messages,
    due_seqs,
    give_up,
    limit_new,
    postpone,
    restart_waits,
    settle,
    terms_of,
)
from retention.consumers.state import ConsumerState, contradictions, from_json, new_state
from tests.support.batch_model import LAST_SEQ, Program, PullConsumer, programs
from tests.support.consumer_model import needs
from tests.support.laws import law

START = 1_000
EXPLICIT = DeliveryTerms("explicit", (30,), -1, -1)


def seqs(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@dataclass
class Ours:
    """The work of the model, done by the functions."""

    terms: DeliveryTerms
    stream: list[int]
    state: ConsumerState = field(default_factory=lambda: new_state(1))

    def fetch(self, count: int, now: int) -> list[tuple[int, int, int]]:
        self.state = give_up(self.state, self.terms, now)
        late = due_seqs(self.state, self.terms, now)
        there = np.isin(late, self.stream)
        self.state = drop_messages(self.state, late[~there])
        again = late[there][:count]
        wanted = limit_new(self.state, self.terms, count - len(again))
        stream = np.array(self.stream, np.int64)
        new = stream[stream > self.state.delivered.stream_seq][:wanted]
        self.state, given_ = deliver(self.state, self.terms, np.append(again, new), now)
        columns = (given_.seq, given_.consumer_seq, given_.deliveries)
        return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass
class Trial:
    """The model and the functions side by side."""

    model: PullConsumer
    ours: Ours
    now: int = START
    given: list[tuple[int, int]] = field(default_factory=list)
    """Sequence and consumer sequence of every delivery."""

    def fetch(self, count: int) -> None:
        fetched = self.model.fetch(count, self.now)
        assert self.ours.fetch(count, self.now) == fetched
        self.given += [(seq, consumer_seq) for seq, consumer_seq, _ in fetched]

    def wait(self, time: int) -> None:
        self.now += time

    def lose(self, seq: int) -> None:
        if seq in self.model.stream:
            self.model.stream.remove(seq)

    def nak(self, delay: int, seq: int) -> None:
        due_ns = self.now + delay
        self.ours.state, _ = postpone(self.ours.state, self.ours.terms, seqs(seq), due_ns)
        self.model.nak(seq, due_ns)

    def progress(self, *named: int) -> None:
        self.ours.state, _ = restart_waits(self.ours.state, seqs(*named), self.now)
        for seq in named:
            self.model.progress(seq, self.now)

    def ack_given(self, place: int, count: int) -> None:
        acks = self.given[place : place + count]
        self._ack(acks, seqs(*(consumer_seq for _, consumer_seq in acks)))

    def ack(self, *named: int) -> None:
        self._ack([(seq, self.model.pending.get(seq, (0,))[0]) for seq in named], None)

    def _ack(self, acks: list[tuple[int, int]], consumer_seqs: np.ndarray | None) -> None:
        before, delivered = self.model.waiting(), self.model.delivered
        for seq, consumer_seq in acks:
            self.model.ack(seq, consumer_seq)
        named, after = seqs(*(seq for seq, _ in acks)), self.model.waiting()
        self.ours.state, answered = settle(self.ours.state, self.ours.terms, named, consumer_seqs)
        unknown = {seq for seq, _ in acks} - before
        assert answered == AnswerResult(
            taken=len({seq for seq, _ in acks} & before - after),
            repeated=len({seq for seq in unknown if seq <= delivered}),
            undelivered=len({seq for seq in unknown if seq > delivered}),
            late=len({seq for seq, _ in acks} & after),
        )


def carry_out(program: Program) -> None:
    stream = list(range(1, LAST_SEQ + 1))
    model = PullConsumer(**program.terms, stream=stream)
    terms = DeliveryTerms(model.policy, model.waits, model.max_deliver, model.max_ack_pending)
    trial = Trial(model, Ours(terms, stream))
    for what, numbers in program.acts:
        before = needs(model.policy, trial.ours.state, tuple(stream))
        getattr(trial, what)(*numbers)
        same(model, trial.ours.state)
        after = needs(model.policy, trial.ours.state, tuple(stream))
        assert after <= before, "what is not needed is never needed again"


def same(model: PullConsumer, state: ConsumerState) -> None:
    shown = model.state()
    assert (state.delivered, state.ack_floor) == (shown.delivered, shown.ack_floor)
    assert state.redelivered.to_pylist() == shown.redelivered.to_pylist()
    waits = [
        {"seq": seq, "consumer_seq": consumer_seq, "ts_ns": model.since[seq]}
        for seq, (consumer_seq, _) in sorted(model.pending.items())
    ]
    assert state.pending.to_pylist() == waits
    assert contradictions(state) == []


@law
@given(programs())
def test_deliveries_and_answers_leave_what_the_server_keeps(program: Program) -> None:
    carry_out(program)


def pending(state: ConsumerState) -> list[int]:
    waiting: list[int] = state.pending["seq"].to_pylist()
    return waiting


def test_what_a_consumer_assumes_is_in_its_terms() -> None:
    stream = StreamConfig(name="S", subjects=("s.>",))
    config = ConsumerConfig.model_validate({"name": "c", "ack_policy": "explicit"})
    assert terms_of(with_server_defaults(config, stream)) == DeliveryTerms(
        "explicit", (30 * 10**9,), -1, 1000
    )
    backing_off = config.model_copy(update={"backoff": (1, 2)})
    assert terms_of(with_server_defaults(backing_off, stream)).waits_ns == (1, 2)


def test_who_waits_longest_is_delivered_first() -> None:
    state, _ = deliver(new_state(1), EXPLICIT, seqs(1, 2, 3), 100)
    state, _ = postpone(state, EXPLICIT, seqs(3), 110)
    state, _ = restart_waits(state, seqs(1), 120)
    assert due_seqs(state, EXPLICIT, 200).tolist() == [3, 2, 1]
    assert due_seqs(state, EXPLICIT, 109).tolist() == []


def test_each_delivery_has_its_own_wait() -> None:
    terms = replace(EXPLICIT, waits_ns=(10, 20))
    state, _ = deliver(new_state(1), terms, seqs(1), 100)
    waits = []
    for now in range(100, 200):
        if len(late := due_seqs(state, terms, now)):
            state, _ = deliver(state, terms, late, now)
            waits.append(now)
    assert waits == [110, 130, 150, 170, 190]


def test_a_message_that_was_given_up_waits_for_nobody_and_can_still_be_settled() -> None:
    terms = replace(EXPLICIT, max_deliver=1)
    state, _ = deliver(new_state(1), terms, seqs(1, 2), 100)
    state, _ = settle(state, terms, seqs(2))
    state = give_up(state, terms, 130)
    assert (pending(state), state.redelivered["seq"].to_pylist()) == ([], [1])
    assert needs("explicit", state, (1, 2, 3)) == {1, 3}
    state, answered = settle(state, terms, seqs(1))
    assert (answered, needs("explicit", state, (1, 2))) == (AnswerResult(taken=1), set())


def test_an_ack_for_all_before_it_stands_for_what_was_given_up_too() -> None:
    terms = DeliveryTerms("all", (30,), 1, -1)
    state, _ = deliver(new_state(1), terms, seqs(1, 2), 100)
    state, _ = deliver(give_up(state, terms, 130), terms, seqs(3), 130)
    assert needs("all", state, (1, 2, 3)) == {1, 2, 3}
    by_itself, answered = settle(state, terms, seqs(1))
    assert (answered, needs("all", by_itself, (1, 2, 3))) == (AnswerResult(taken=1), {2, 3})
    by_a_later_one, _ = settle(state, terms, seqs(3))
    assert needs("all", by_a_later_one, (1, 2, 3)) == set()


def test_deliveries_that_nobody_saw_are_due_at_once() -> None:
    delivered = {"consumer_seq": 2, "stream_seq": 2}
    waits = {"1": {"Sequence": 1, "Timestamp": 0}, "2": {"Sequence": 2, "Timestamp": 100}}
    floor = {"consumer_seq": 0, "stream_seq": 0}
    state = from_json({"delivered": delivered, "ack_floor": floor, "pending": waits})
    assert due_seqs(state, EXPLICIT, 100).tolist() == [1]
