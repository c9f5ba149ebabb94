"""Deliveries and answers as functions of a consumer's state and an instant, by the server's accounting."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from retention.config.consumer import ConsumerConfig
from retention.consumers.ack_events import AckLines
from retention.consumers.ack_floor import floor_of_all
from retention.consumers.ack_result import AnswerResult
from retention.consumers.state import PENDING, REDELIVERED, ConsumerState, DeliveryPosition

Numbers = np.ndarray
Mask = np.ndarray


@dataclass(frozen=True)
class DeliveryTerms:
    """Terms of delivery: the part of a consumer's configuration that decides which messages it receives, and when."""

    ack_policy: str
    waits_ns: tuple[int, ...]
    """Nanoseconds from each delivery to the next; the last value applies to all later ones."""
    max_deliver: int
    """Maximum number of deliveries of a message; not above 0: no limit."""
    max_ack_pending: int
    """Maximum number of pending messages while new ones are delivered; not above 0: no limit."""


def terms_of(config: ConsumerConfig) -> DeliveryTerms:
    """The terms of a resolved configuration."""
    return DeliveryTerms(
        ack_policy=config.ack_policy,
        waits_ns=config.backoff or (config.ack_wait,),
        max_deliver=config.max_deliver,
        max_ack_pending=config.max_ack_pending,
    )


@dataclass(frozen=True)
class Delivery:
    """Deliveries of messages, in their order; arrays of equal length."""

    seq: Numbers
    consumer_seq: Numbers
    """Number of each delivery in the consumer's count."""
    deliveries: Numbers
    """Number of the message's deliveries, including this one."""

    def __len__(self) -> int:
        """Number of deliveries."""
        return len(self.seq)

    def without(self, seqs: Numbers) -> Delivery:
        """The deliveries of all other messages."""
        others = ~np.isin(self.seq, seqs)
        return Delivery(self.seq[others], self.consumer_seq[others], self.deliveries[others])


def give_up(state: ConsumerState, terms: DeliveryTerms, now_ns: int) -> ConsumerState:
    """Give up messages that are due and have reached the maximum number of deliveries (server: hasMaxDeliveries).

    They are no longer pending, and remain among the redelivered until they are settled.
    """
    if terms.max_deliver <= 0:
        return state
    count = _redeliveries(state) + 1
    spent = (_due_at(state, terms) <= now_ns) & (count >= terms.max_deliver)
    after = _without(state, spent)
    seqs = state.pending["seq"].to_numpy()
    return replace(after, redelivered=_counted(state, seqs[spent], count[spent]))


def due_seqs(state: ConsumerState, terms: DeliveryTerms, now_ns: int) -> Numbers:
    """Stream sequences to deliver again at `now_ns`, the longest due first."""
    at = _due_at(state, terms)
    late = np.flatnonzero(at <= now_ns)
    return state.pending["seq"].to_numpy()[late[np.argsort(at[late], kind="stable")]]


def limit_new(state: ConsumerState, terms: DeliveryTerms, wanted: int) -> int:
    """Limit a number of wanted messages to those that may be delivered for the first time (server: max_ack_pending)."""
    if terms.max_ack_pending <= 0 or terms.ack_policy == "none":
        return wanted
    return max(min(wanted, terms.max_ack_pending - state.num_ack_pending), 0)


def deliver(
    state: ConsumerState, terms: DeliveryTerms, seqs: Numbers, now_ns: int
) -> tuple[ConsumerState, Delivery]:
    """Deliver messages in the order of `seqs`.

    Args:
        state: the state before.
        terms: with ack policy `none` a delivered message is settled at once.
        seqs: first pending messages, then new ones above the last delivery, ascending.
        now_ns: the start of their waits.
    """
    if not len(seqs):
        return state, Delivery(seqs, seqs, seqs)
    before = state.delivered
    consumer_seqs = before.consumer_seq + 1 + np.arange(len(seqs))
    is_new = seqs > before.stream_seq
    times = _redeliveries_of(state, seqs) + np.where(is_new, 1, 2)
    last = DeliveryPosition(int(consumer_seqs[-1]), max(int(seqs.max()), before.stream_seq))
    delivery = Delivery(seqs, consumer_seqs, times)
    state = replace(state, lasts=_above(state.lasts, last.stream_seq))
    if terms.ack_policy == "none":
        return replace(state, delivered=last, ack_floor=last), delivery
    waiting = _timed(state.pending, np.isin(state.pending["seq"].to_numpy(), seqs), now_ns)
    new = [seqs[is_new], consumer_seqs[is_new], np.full(int(is_new.sum()), now_ns)]
    after = replace(
        state,
        delivered=last,
        pending=pa.concat_tables([waiting, pa.table(new, schema=PENDING)]).combine_chunks(),
        redelivered=_counted(state, seqs[~is_new], times[~is_new] - 1),
    )
    return after, delivery


def settle(
    state: ConsumerState, terms: DeliveryTerms, seqs: Numbers, consumer_seqs: Numbers | None = None
) -> tuple[ConsumerState, AnswerResult]:
    """Apply acks, or terms, which settle the same way (server: processAckMsg).

    Args:
        state: the state before.
        terms: with `ack_policy: all` an ack includes all before it.
        seqs: the stream sequences of the messages.
        consumer_seqs: the consumer sequences of the acknowledged deliveries; None: of the first ones.
    """
    if terms.ack_policy == "explicit":
        after = drop_messages(state, seqs)
    elif terms.ack_policy == "none":
        after = state
    else:
        acked = _first_consumer_seqs(state, seqs) if consumer_seqs is None else consumer_seqs
        after = _settled_up_to(state, floor_of_all(state.ack_floor, _acks(state, seqs, acked)))
        after = drop_messages(after, seqs[~np.isin(seqs, state.pending["seq"].to_numpy())])
    return after, _answered(state, seqs, _waiting(state), _waiting(after))


def drop_messages(state: ConsumerState, seqs: Numbers) -> ConsumerState:
    """Drop messages from the pending ones: they are settled, or no longer in the stream."""
    dropped = np.isin(state.redelivered["seq"].to_numpy(), seqs)
    after = _without(state, np.isin(state.pending["seq"].to_numpy(), seqs))
    if not dropped.any():
        return after
    return replace(after, redelivered=state.redelivered.filter(pa.array(~dropped)))


def postpone(
    state: ConsumerState, terms: DeliveryTerms, seqs: Numbers, due_ns: int
) -> tuple[ConsumerState, AnswerResult]:
    """Apply naks: the pending ones of these messages are due at `due_ns`, regardless of their wait."""
    named = np.isin(state.pending["seq"].to_numpy(), seqs)
    began = np.maximum(due_ns - _waits(state, terms), 1)
    return _timed_and_answered(state, seqs, named, began)


def restart_waits(
    state: ConsumerState, seqs: Numbers, now_ns: int
) -> tuple[ConsumerState, AnswerResult]:
    """Apply progress reports: the waits of these messages restart."""
    named = np.isin(state.pending["seq"].to_numpy(), seqs)
    return _timed_and_answered(state, seqs, named, np.full(len(named), now_ns))


def _timed_and_answered(
    state: ConsumerState, seqs: Numbers, named: Mask, began: Numbers
) -> tuple[ConsumerState, AnswerResult]:
    waiting = state.pending["seq"].to_numpy()
    answered = _answered(state, seqs, waiting, waiting[~named])
    return replace(state, pending=_timed(state.pending, named, began)), answered


def _answered(state: ConsumerState, seqs: Numbers, before: Numbers, after: Numbers) -> AnswerResult:
    """Count messages by the effect of an answer, from the sequences pending before and after it."""
    seqs = np.unique(seqs)
    strange = (seqs > state.delivered.stream_seq) | (seqs < 1)
    waited, waits = np.isin(seqs, before), np.isin(seqs, after)
    return AnswerResult(
        taken=int((waited & ~waits).sum()),
        repeated=int((~waited & ~strange).sum()),
        undelivered=int((~waited & strange).sum()),
        late=int(waits.sum()),
    )


def _waiting(state: ConsumerState) -> Numbers:
    """Sequences of the pending messages, and of those given up."""
    return np.append(state.pending["seq"].to_numpy(), state.redelivered["seq"].to_numpy())


def _without(state: ConsumerState, dropped: Mask) -> ConsumerState:
    """Drop some pending messages, and move the floor right below the lowest remaining one (server: moveAckFloor)."""
    if not dropped.any():
        return state
    remaining = state.pending.filter(pa.array(~dropped)).combine_chunks()
    if not remaining.num_rows:
        return replace(state, pending=remaining, ack_floor=state.delivered)
    lowest, floor = remaining.slice(0, 1).to_pylist()[0], state.ack_floor
    if state.pending["seq"][0].as_py() < lowest["seq"]:
        floor = DeliveryPosition(
            max(lowest["consumer_seq"] - 1, floor.consumer_seq),
            max(lowest["seq"] - 1, floor.stream_seq),
        )
    return replace(state, pending=remaining, ack_floor=floor)


def _settled_up_to(state: ConsumerState, floor: DeliveryPosition) -> ConsumerState:
    if floor == state.ack_floor:
        return state
    pending, redelivered = (
        _above(table, floor.stream_seq) for table in (state.pending, state.redelivered)
    )
    return replace(state, ack_floor=floor, pending=pending, redelivered=redelivered)


def _above(table: pa.Table, seq: int) -> pa.Table:
    """The rows above a stream sequence."""
    return table.filter(pa.array(table["seq"].to_numpy() > seq)).combine_chunks()


def _acks(state: ConsumerState, seqs: Numbers, consumer_seqs: Numbers) -> AckLines:
    known = (seqs <= state.delivered.stream_seq) & (consumer_seqs > 0)
    seqs, consumer_seqs = seqs[known], consumer_seqs[known]
    return AckLines(
        np.zeros(len(seqs), np.int8), np.ones_like(seqs), seqs, consumer_seqs, np.zeros_like(seqs)
    )


def _first_consumer_seqs(state: ConsumerState, seqs: Numbers) -> Numbers:
    """The consumer sequences of the first deliveries of pending messages; 0 for others."""
    known, consumer_seqs = state.pending["seq"].to_numpy(), state.pending["consumer_seq"].to_numpy()
    return _looked_up(known, consumer_seqs, seqs)


def _due_at(state: ConsumerState, terms: DeliveryTerms) -> Numbers:
    return state.pending["ts_ns"].to_numpy() + _waits(state, terms)


def _waits(state: ConsumerState, terms: DeliveryTerms) -> Numbers:
    """Nanoseconds from the last delivery of each pending message until it is due."""
    waits = np.array(terms.waits_ns, np.int64)
    return waits[np.minimum(_redeliveries(state), len(waits) - 1)]


def _redeliveries(state: ConsumerState) -> Numbers:
    return _redeliveries_of(state, state.pending["seq"].to_numpy())


def _redeliveries_of(state: ConsumerState, seqs: Numbers) -> Numbers:
    """Number of deliveries of each message after the first."""
    known, counts = state.redelivered["seq"].to_numpy(), state.redelivered["count"].to_numpy()
    return _looked_up(known, counts, seqs)


def _looked_up(known: Numbers, values: Numbers, seqs: Numbers) -> Numbers:
    """Look up the values of sequences among ascending ones; 0 for a missing sequence."""
    if not len(known):
        return np.zeros(len(seqs), np.int64)
    at = np.minimum(np.searchsorted(known, seqs), len(known) - 1)
    return np.where(known[at] == seqs, values[at], 0)


def _counted(state: ConsumerState, seqs: Numbers, counts: Numbers) -> pa.Table:
    """The redelivered messages with new counts for `seqs`, shape `REDELIVERED`."""
    if not len(seqs):
        return state.redelivered
    known, old = state.redelivered["seq"].to_numpy(), state.redelivered["count"].to_numpy()
    others = ~np.isin(known, seqs)
    all_seqs, all_counts = np.append(known[others], seqs), np.append(old[others], counts)
    order = np.argsort(all_seqs)
    return pa.table([all_seqs[order], all_counts[order]], schema=REDELIVERED)


def _timed(pending: pa.Table, named: Mask, began: Numbers | int) -> pa.Table:
    """The pending messages, shape `PENDING`, with another start of the wait where `named` is true."""
    times = np.where(named, began, pending["ts_ns"].to_numpy())
    columns = [pending["seq"], pending["consumer_seq"], pa.chunked_array([pa.array(times)])]
    return pa.table(columns, schema=PENDING)
