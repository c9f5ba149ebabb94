"""Selection of the messages for one request, and the consumer's state after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.config.consumer import ConsumerConfig
from retention.consumers.delivery_state import (
    Delivery,
    DeliveryTerms,
    Numbers,
    deliver,
    drop_messages,
    due_seqs,
    give_up,
    limit_new,
    terms_of,
)
from retention.consumers.state import ConsumerState
from retention.core.units import INT64_MAX
from retention.core.wording import counted
from retention.delivery.upcoming import Upcoming
from retention.errors import RefusedError, UsageError

DEFAULT_BATCH = 1000


@dataclass(frozen=True)
class FetchRequest:
    """A client's request to a consumer: limits on messages and bytes, and an instant."""

    count: int
    bytes: int
    """Maximum number of bytes, by the sizes that the stream counts."""
    now_ns: int


def request_of(
    config: ConsumerConfig, n: int | None, max_bytes: int | None, now_ns: int
) -> FetchRequest:
    """Make a request within the limits of the consumer; `n` and `max_bytes` as in `BatchConsumer.fetch`.

    Raises:
        UsageError: more than the consumer's `max_batch` or `max_bytes` is requested, or nothing.
    """
    allowed = config.max_batch or n or DEFAULT_BATCH
    count = min(DEFAULT_BATCH, allowed) if n is None else n
    size = INT64_MAX if max_bytes is None else max_bytes
    if count < 1 or size < 1:
        raise UsageError(
            f"{config.name}: a batch has at least one message and one byte; request more"
        )
    if count > allowed:
        raise UsageError(
            f"{config.name}: its max_batch is {allowed}, and {counted(count, 'message was', 'messages were')} "
            "requested; request fewer"
        )
    if max_bytes is not None and 0 < config.max_bytes < max_bytes:
        raise UsageError(
            f"{config.name}: its max_bytes is {config.max_bytes}, and {max_bytes} were requested; request fewer"
        )
    return FetchRequest(count, size, now_ns)


def answer_request(
    state: ConsumerState, config: ConsumerConfig, stream: Upcoming, request: FetchRequest
) -> tuple[ConsumerState, Delivery]:
    """Deliver messages due for redelivery, then new ones; none while the consumer is paused.

    Args:
        state: the state before.
        config: the consumer's configuration, resolved.
        stream: the stream at a version read before the state.
        request: the request.

    Raises:
        RefusedError: the first message alone has more bytes than requested.
    """
    terms = terms_of(config)
    if request.now_ns < (config.pause_until or 0):
        return deliver(state, terms, _NOTHING, request.now_ns)
    state = give_up(state, terms, request.now_ns)
    state, again, sizes = _due_again(state, terms, stream, request.now_ns)
    wanted = limit_new(state, terms, request.count - len(again))
    new = _next(state, config, stream, wanted)
    seqs = np.append(again, new["seq"].to_numpy())
    taken = _within(config.name, seqs, np.append(sizes, new["size"].to_numpy()), request)
    return deliver(state, terms, seqs[:taken], request.now_ns)


_NOTHING = np.zeros(0, np.int64)


def _next(state: ConsumerState, config: ConsumerConfig, stream: Upcoming, count: int) -> pa.Table:
    """The next undelivered messages: the last ones of subjects that a consumer began with, then all above them.

    A message published after this version of the stream was read may be missing from it; a later request
    delivers it.
    """
    known, delivered = state.lasts["seq"].to_numpy(), state.delivered.stream_seq
    lasts = stream.among(known[(known > delivered) & (known < stream.end)], count)
    above = max(delivered, state.until)
    return pa.concat_tables([lasts, stream.after(above, config.filters, count - len(lasts))])


def _due_again(
    state: ConsumerState, terms: DeliveryTerms, stream: Upcoming, now_ns: int
) -> tuple[ConsumerState, Numbers, Numbers]:
    """The state without lost messages, and the messages due for redelivery with their sizes.

    A message that the stream has lost is no longer pending. One published after this version of the stream was read may
    exist, and remains pending.
    """
    seqs = due_seqs(state, terms, now_ns)
    if not len(seqs):
        return state, seqs, seqs
    seqs = seqs[seqs < stream.end]
    sizes = stream.sizes(seqs)
    there = sizes >= 0
    return drop_messages(state, seqs[~there]), seqs[there], sizes[there]


def _within(consumer: str, seqs: Numbers, sizes: Numbers, request: FetchRequest) -> int:
    """Number of leading messages that fit into a request."""
    fitting = int(np.searchsorted(np.cumsum(sizes), request.bytes, side="right"))
    if len(seqs) and not fitting:
        raise RefusedError(
            f"{consumer}: message {seqs[0]} has {sizes[0]} bytes, and a batch of at most {request.bytes} was "
            "requested; nothing was delivered; request more bytes"
        )
    return min(fitting, request.count)
