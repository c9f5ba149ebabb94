"""A batch consumer: a delivery is recorded before the client gets it, an answer when the call returns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from retention.config.consumer import ConsumerConfig
from retention.consumers.ack_result import AnswerResult
from retention.consumers.delivery_state import (
    Delivery,
    Numbers,
    postpone,
    restart_waits,
    settle,
    terms_of,
)
from retention.consumers.sampling import sample_percent, sampled_acks
from retention.consumers.state import ConsumerState
from retention.context.context import OpenedStream
from retention.context.topic import refuse_consumers_of_topic
from retention.core.arguments import checked_class
from retention.core.units import parse_duration
from retention.delivery.messages import Message, Messages, delivered_rows, gaps_of
from retention.delivery.record import RecordedConsumer
from retention.delivery.select import answer_request, request_of
from retention.delivery.upcoming import Upcoming, upcoming
from retention.interest.edit import delete_consumer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AnswerTarget: TypeAlias = Messages | Message | Sequence[int] | Numbers
"""Messages to be answered: many, one, or their stream sequences."""

NONE_BEFORE = 0
_log = logging.getLogger("retention.consuming")


@dataclass(frozen=True)
class _Chosen:
    """Deliveries chosen for a request, and the configuration used to choose them."""

    config: ConsumerConfig
    delivery: Delivery
    after_seq: int
    """Stream sequence of the previous new message; `NONE_BEFORE`: there was none."""


@checked_class
class BatchConsumer:
    """Client of a consumer; several clients, in any process, receive different messages."""

    def __init__(self, opened: OpenedStream, name: str) -> None:
        """Find the consumer; if the configuration lists it, it is created.

        Raises:
            UsageError: there is no such consumer, or the stream is a topic.
            RefusedError: the consumer does not support fetching.
        """
        refuse_consumers_of_topic(opened.config)
        self._opened = opened
        self._recorded = RecordedConsumer(opened, name)
        self._stream: Upcoming | None = None
        self._unanswered: list[Delivery] = []

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self._recorded.name

    @property
    def stream(self) -> str:
        """The name of the consumer's stream."""
        return self._opened.name

    @property
    def state(self) -> ConsumerState:
        """The consumer's progress, over all its clients."""
        return self._recorded.read().state

    def fetch(self, n: int | None = None, max_bytes: int | None = None) -> Messages:
        """Fetch the next messages: first those due for redelivery, then new ones; empty if there are none.

        They are recorded as delivered when this returns; a message not answered within `ack_wait` is delivered again.

        Args:
            n: maximum number of messages; None: 1,000, or the consumer's `max_batch` if that is less.
            max_bytes: maximum number of bytes, by the sizes that the stream counts.

        Raises:
            UsageError: more than the consumer's `max_batch` or `max_bytes` is requested, or nothing.
            RefusedError: the first message alone has more than `max_bytes`.
            BusyError: other clients kept coming first.
        """
        chosen, stream = self._deliver(n, max_bytes)
        rows, delivery, gaps = stream.rows(chosen.delivery.seq), chosen.delivery, None
        if chosen.config.replay_policy == "original":
            before_ns = stream.time(chosen.after_seq)
            gaps = gaps_of(rows["ts_ns"].to_numpy(), delivery, before_ns)
        table = delivered_rows(rows, delivery, gaps, headers_only=chosen.config.headers_only)
        return Messages(table, self._answer)

    def read(
        self, spark: SparkSession, n: int | None = None, max_bytes: int | None = None
    ) -> DataFrame:
        """Read the next messages as a Spark DataFrame, with the columns of the stream; `ack_all` settles them.

        Args:
            spark: the session; it is not changed.
            n: as in `fetch`.
            max_bytes: as in `fetch`.

        Raises:
            UsageError, RefusedError, BusyError: as `fetch`.
        """
        from retention.engines.spark.read import read_seqs

        chosen, _ = self._deliver(n, max_bytes)
        frame = read_seqs(self._opened, spark, chosen.delivery.seq)
        return frame.drop("payload") if chosen.config.headers_only else frame

    def ack(self, messages: AnswerTarget) -> AnswerResult:
        """Settle messages; those already settled, or never delivered, are counted without an error.

        Raises:
            BusyError: other clients kept coming first.
        """
        return self._answer("ack", *_named(messages))

    def ack_all(self) -> AnswerResult:
        """Settle every message that this object received and has not answered; as `ack`."""
        empty = np.zeros(0, np.int64)
        seqs = np.concatenate([empty, *(delivery.seq for delivery in self._unanswered)])
        consumer_seqs = np.concatenate(
            [empty, *(delivery.consumer_seq for delivery in self._unanswered)]
        )
        return self._answer("ack", seqs, consumer_seqs)

    def nak(self, messages: AnswerTarget, delay: str | int = 0) -> AnswerResult:
        """Request redelivery of messages, at once or after a delay: a duration, or nanoseconds."""
        return self._answer("nak", *_named(messages), delay)

    def term(self, messages: AnswerTarget, reason: str = "") -> AnswerResult:
        """Settle messages that cannot be processed; the reason is logged."""
        return self._answer("term", *_named(messages), reason)

    def in_progress(self, messages: AnswerTarget) -> AnswerResult:
        """Report progress on messages: `ack_wait` restarts."""
        return self._answer("in_progress", *_named(messages))

    def _deliver(self, n: int | None, max_bytes: int | None) -> tuple[_Chosen, Upcoming]:
        now_ns = self._opened.clock()
        # Read before the record: otherwise messages that other clients deliver meanwhile would look removed.
        self._stream = stream = upcoming(self._opened, self._stream)

        def work(state: ConsumerState, config: ConsumerConfig) -> tuple[ConsumerState, _Chosen]:
            request = request_of(config, n, max_bytes, now_ns)
            after, delivery = answer_request(state, config, stream, request)
            before = state.delivered
            return after, _Chosen(
                config, delivery, before.stream_seq if before.consumer_seq else NONE_BEFORE
            )

        chosen = self._recorded.change(work, now_ns)
        if len(chosen.delivery) and chosen.config.ack_policy != "none":
            self._unanswered.append(chosen.delivery)
        return chosen, stream

    def _answer(
        self, verb: str, seqs: Numbers, consumer_seqs: Numbers | None, detail: Any = None
    ) -> AnswerResult:
        now_ns = self._opened.clock()
        due_ns = now_ns + (parse_duration(detail) if verb == "nak" else 0)

        def sampled(state: ConsumerState, config: ConsumerConfig) -> pa.Table:
            share = sample_percent(config.sample_freq) if config.ack_policy == "explicit" else 0
            acks, names = (seqs, consumer_seqs), (self.stream, self.name)
            return sampled_acks(state, acks, share, now_ns, names)

        def work(
            state: ConsumerState, config: ConsumerConfig
        ) -> tuple[ConsumerState, AnswerResult]:
            terms = terms_of(config)
            match verb:
                case "nak":
                    return postpone(state, terms, seqs, due_ns)
                case "in_progress":
                    return restart_waits(state, seqs, now_ns)
                case "ack":
                    after, answered = settle(state, terms, seqs, consumer_seqs)
                    return after, replace(answered, sampled=sampled(state, config))
                case _:
                    return settle(state, terms, seqs, consumer_seqs)

        answered = self._recorded.change(work, now_ns)
        if verb == "term":
            _log.info("%s > %s: %s: %s", self.stream, self.name, seqs.tolist(), detail)
        if verb != "in_progress":
            self._unanswered = [
                remaining
                for delivery in self._unanswered
                if len(remaining := delivery.without(seqs))
            ]
        return answered

    def __enter__(self) -> Self:
        """Begin a block of work on messages; see `__exit__`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the consumer unless it is durable: it existed only for this block."""
        if not self._recorded.config().is_durable:
            delete_consumer(self._opened, self.name)

    def __repr__(self) -> str:
        return f"BatchConsumer({self.name!r} of {self._opened.name!r} in {self._opened.warehouse})"


def _named(messages: AnswerTarget) -> tuple[Numbers, Numbers | None]:
    """The stream sequences of messages, and their consumer sequences if known."""
    if isinstance(messages, Messages):
        return messages.seqs, messages.consumer_seqs
    if isinstance(messages, Message):
        return np.array([messages.seq]), np.array([messages.consumer_seq])
    return np.asarray(messages, np.int64), None
