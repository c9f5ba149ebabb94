"""Where new messages of a topic's partition lie: in which batch, at which time, in which segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.layout.segment_roll import Active

BATCH_HEADER_BYTES = 256
"""What a server of 0.9 writes before the messages of a batch; their first one is counted with it."""


@dataclass(frozen=True)
class Tail:
    """Where a partition ends: what the next batch is appended to."""

    next_seq: int
    active: Active
    last_us: int | None = None
    """The broker's time of the last batch, microseconds; None: nothing tells."""


@dataclass(frozen=True)
class Batch:
    """Neighbouring messages, `start` to before `end`, that one append takes: of one time, in one segment."""

    base: int
    """The segment's."""
    start: int
    end: int
    first_seq: int
    ts_us: int
    bytes: int
    """Of the log, with the header of the batch."""


def laid(tail: Tail, sizes: Array, policy: TopicPolicy, now_us: int) -> tuple[list[Batch], Tail]:
    """Append messages to a partition as the profile's server does (docs/semantics/topics.md).

    Work is by batch, not by message. Appending what comes behind a batch later, at the same time, changes nothing.

    Args:
        tail: where the partition ends.
        sizes: int64, bytes of each message's record, above zero.
        policy: the topic's.
        now_us: the clock, microseconds since the epoch.

    Returns:
        The batches, and where the partition ends after them.
    """
    batches = []
    for start, end, size in _cut(sizes, policy):
        tail = _with_room(tail, _time(tail, policy, now_us), policy)
        first_seq, ts_us = tail.next_seq, _time(tail, policy, now_us)
        batches.append(Batch(tail.active.base, start, end, first_seq, ts_us, size))
        tail = _behind(tail, batches[-1], policy)
    return batches, tail


def whole_batches(sizes: Array, policy: TopicPolicy) -> int:
    """How many of the messages are in batches that no later message can join."""
    *_, last = [0, *(start for start, _, _ in _cut(sizes, policy))]
    return last


def record_sizes(header_bytes: Array, payload_bytes: Array, policy: TopicPolicy) -> Array:
    """Bytes of each message's record in the log, int64, from the lengths of user headers and payload."""
    sizes: Array = header_bytes + payload_bytes + _RECORD_BYTES[policy.profile]
    return sizes


def framing(policy: TopicPolicy) -> int:
    """Bytes of what a log has before the messages of each batch."""
    return BATCH_HEADER_BYTES if policy.profile == "modern" else 0


def with_headers(sizes: Array, batches: list[Batch], policy: TopicPolicy) -> Array:
    """The bytes that each message is counted with, which add up to those of the log."""
    counted: Array = sizes.copy()
    counted[[batch.start for batch in batches]] += framing(policy)
    return counted


def is_aged(first_us: Array, policy: TopicPolicy, now_us: int) -> Array:
    """Active segments that `roll_after` seals, their first message being of that time; a mask. 0 is no time."""
    if policy.roll_after_us is None:
        return np.zeros(len(first_us), dtype=bool)
    return (first_us != 0) & (first_us <= now_us - policy.roll_after_us)


def _with_room(tail: Tail, ts_us: int, policy: TopicPolicy) -> Tail:
    """The same end of a partition, behind a new segment if a batch of that time must not go into the active one.

    Today's server seals before it appends what it finds full when it starts; that of 0.8 looks behind the append.
    """
    active = tail.active
    first_us = np.array([(active.first_ts_ns or 0) // MICROSECOND])
    is_full = policy.profile == "modern" and active.bytes >= policy.segment_size
    if is_full or is_aged(first_us, policy, ts_us)[0]:
        return replace(tail, active=Active(tail.next_seq))
    return tail


def _behind(tail: Tail, batch: Batch, policy: TopicPolicy) -> Tail:
    """Where a partition ends after a batch, whose segment is sealed at once if it is full.

    Today's server seals what has reached `segment_size`; that of 0.8 looks at what was stored before the batch, so
    that one more batch lands in the segment.
    """
    before = tail.active
    first_ts_ns = before.first_ts_ns
    first_ts_ns = batch.ts_us * MICROSECOND if first_ts_ns is None else first_ts_ns
    after = Active(before.base, before.bytes + batch.bytes, first_ts_ns)
    next_seq = batch.first_seq + batch.end - batch.start
    measured = before if policy.profile == "v8" else after
    is_full = measured.bytes >= policy.segment_size
    return Tail(next_seq, Active(next_seq) if is_full else after, batch.ts_us)


def _time(tail: Tail, policy: TopicPolicy, now_us: int) -> int:
    """The broker's time of the next batch: the clock; today's server never gives one twice, nor an earlier one."""
    if policy.profile == "v8" or tail.last_us is None:
        return now_us
    return max(now_us, tail.last_us + 1)


def _cut(sizes: Array, policy: TopicPolicy) -> Iterator[tuple[int, int, int]]:
    """Where batches begin and end, and their bytes: as many messages as `max_message_size` takes, but one at least."""
    before_each = framing(policy)
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        fitting = np.searchsorted(
            ends, before + policy.max_message_size - before_each, side="right"
        )
        end = max(int(fitting), start + 1)
        yield start, end, int(ends[end - 1]) - before + before_each
        start, before = end, int(ends[end - 1])


_RECORD_BYTES = {"modern": 48, "v8": 64}
"""The header of a message's record."""
