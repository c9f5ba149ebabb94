"""The layout of new messages in a topic's partition: their batches, with the time and segment of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from retention.core.spans import Array
from retention.core.topic_policy import CLOCKS_APART_US, TopicPolicy
from retention.core.units import MICROSECOND
from retention.layout.segment_roll import ActiveSegment, Tail

BATCH_HEADER_BYTES = 256
"""The bytes of the header that a 0.9 server writes before each batch; they count with its first message."""

BatchCut = tuple[int, int, int]
"""First message of a batch, end (exclusive), and bytes with its header."""


@dataclass(frozen=True)
class AppendedBatch:
    """Adjacent messages, `start` to `end` (exclusive), of one append: with one time, in one segment."""

    base: int
    """The base of the segment."""
    start: int
    end: int
    first_seq: int
    ts_us: int
    bytes: int
    """The bytes in the log, with the header of the batch."""


def lay_out(
    tail: Tail, sizes: Array, policy: TopicPolicy, now_us: int
) -> tuple[list[AppendedBatch], Tail]:
    """Append messages to a partition as the profile's server does (docs/semantics/topics.md).

    Work grows with batches, not with messages. Several calls with the same clock give the same result as one.

    Args:
        tail: the end of the partition.
        sizes: int64, bytes of each message's record, above zero.
        policy: the policy of the topic.
        now_us: the clock, microseconds since the epoch.

    Returns:
        The batches, and the end of the partition after them.
    """
    return append_cut(tail, _cut(sizes, policy), policy, now_us)


def append_cut(
    tail: Tail, cuts: Iterable[BatchCut], policy: TopicPolicy, now_us: int
) -> tuple[list[AppendedBatch], Tail]:
    """Append batches that are already cut; other arguments and the result are as in `lay_out`."""
    batches = []
    for start, end, size in cuts:
        ts_us = _time(tail, policy, now_us)
        active = _with_room(tail, ts_us, policy)
        batches.append(AppendedBatch(active.base, start, end, tail.next_seq, ts_us, size))
        tail = _tail_after(active, batches[-1], policy)
    return batches, tail


def place_stored(
    tail: Tail, batches: Iterable[AppendedBatch], policy: TopicPolicy, *, is_end: bool
) -> tuple[list[AppendedBatch], Tail]:
    """Place batches that a server has numbered and timed in segments, as that server rolls its own.

    A batch that begins after a gap opens a segment, because a server deletes whole segments. One with the time and the
    next offset of the batch before it is the rest of that one, and stays with it.

    Args:
        tail: the end of the partition.
        batches: the batches in order; their `base` is not used.
        policy: the policy of the topic.
        is_end: whether the last batch is complete, so that a full segment is sealed at once.

    Returns:
        The batches with their bases, and the end of the partition after them.
    """
    placed = []
    for batch in batches:
        active = _segment_of_stored(tail, batch, policy)
        placed.append(replace(batch, base=active.base))
        first_ts_ns = active.first_ts_ns
        first_ts_ns = batch.ts_us * MICROSECOND if first_ts_ns is None else first_ts_ns
        after = ActiveSegment(active.base, active.bytes + batch.bytes, first_ts_ns)
        tail = Tail(batch.first_seq + batch.end - batch.start, after, batch.ts_us)
    if is_end and tail.active is not None and tail.active.bytes >= policy.segment_size:
        tail = replace(tail, active=ActiveSegment(tail.next_seq))
    return placed, tail


def record_sizes(header_bytes: Array, payload_bytes: Array, policy: TopicPolicy) -> Array:
    """Bytes of each message's log record, int64, from the lengths of user headers and payload."""
    sizes: Array = header_bytes + payload_bytes + _RECORD_BYTES[policy.profile]
    return sizes


def header_bytes_of_batch(policy: TopicPolicy) -> int:
    """The bytes of the header before the messages of each batch in a log."""
    return BATCH_HEADER_BYTES if policy.profile == "modern" else 0


def accounted_sizes(sizes: Array, batches: list[AppendedBatch], policy: TopicPolicy) -> Array:
    """The accounted bytes of each message, int64; the first of a batch includes its header, so the sum is the log's."""
    counted: Array = sizes.copy()
    counted[[batch.start for batch in batches]] += header_bytes_of_batch(policy)
    return counted


def aged_mask(first_us: Array, policy: TopicPolicy, now_us: int) -> Array:
    """A mask of the active segments that `roll_after` seals, by the times of their first messages (0 for none)."""
    if policy.roll_after_us is None:
        return np.zeros(len(first_us), dtype=bool)
    return (first_us != 0) & (first_us <= now_us - policy.roll_after_us)


def _with_room(tail: Tail, ts_us: int, policy: TopicPolicy) -> ActiveSegment:
    """The segment for a batch at a time: the active one, or a new one if the active one must be sealed.

    Before an append, a 0.9 server seals a segment that was already full when the server started; a 0.8 server checks
    after appends.
    """
    active = tail.active or ActiveSegment(0)
    first_us = np.array([(active.first_ts_ns or 0) // MICROSECOND])
    is_full = policy.profile == "modern" and active.bytes >= policy.segment_size
    if is_full or aged_mask(first_us, policy, ts_us)[0]:
        return ActiveSegment(tail.next_seq)
    return active


def _segment_of_stored(tail: Tail, batch: AppendedBatch, policy: TopicPolicy) -> ActiveSegment:
    if batch.first_seq != tail.next_seq:
        return ActiveSegment(batch.first_seq)
    if tail.active is not None and tail.active.bytes and tail.last_us == batch.ts_us:
        return tail.active
    return _with_room(tail, batch.ts_us, policy)


def _tail_after(before: ActiveSegment, batch: AppendedBatch, policy: TopicPolicy) -> Tail:
    """The end of a partition after a batch; a full segment is sealed at once.

    A 0.9 server seals a segment that has reached `segment_size`. A 0.8 server measures the bytes before the batch, so
    one more batch is written to the segment.
    """
    first_ts_ns = before.first_ts_ns
    first_ts_ns = batch.ts_us * MICROSECOND if first_ts_ns is None else first_ts_ns
    after = ActiveSegment(before.base, before.bytes + batch.bytes, first_ts_ns)
    next_seq = batch.first_seq + batch.end - batch.start
    measured = before if policy.profile == "v8" else after
    is_full = measured.bytes >= policy.segment_size
    return Tail(next_seq, ActiveSegment(next_seq) if is_full else after, batch.ts_us)


def _time(tail: Tail, policy: TopicPolicy, now_us: int) -> int:
    """The broker's time of the next batch: the clock; on 0.9, always later than the previous batch.

    The first batch of a segment has the clock's time even if the clock was set back since the previous batch, as on a
    restarted 0.9 server. Otherwise a clock that was once ahead would stamp a partition forever.
    """
    if policy.profile == "v8" or tail.last_us is None:
        return now_us
    is_first = tail.active is None or tail.active.first_ts_ns is None
    if is_first and tail.last_us > now_us + CLOCKS_APART_US:
        return now_us
    return max(now_us, tail.last_us + 1)


def _cut(sizes: Array, policy: TopicPolicy) -> Iterator[BatchCut]:
    """The start, end and bytes of each batch: as many messages as fit in `max_message_size`, but at least one.

    >>> policy = TopicPolicy(partitions=1, segment_size=2**30, max_message_size=100, profile="v8")
    >>> list(_cut(np.array([60, 40, 10, 200]), policy))
    [(0, 2, 100), (2, 3, 10), (3, 4, 200)]
    """
    before_each = header_bytes_of_batch(policy)
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
"""The bytes of the header of a message's log record, by profile."""
