"""The roll of segments: a segment takes messages until it reaches its size or its span of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_FIRST_STEP = 4_096


@dataclass(frozen=True)
class RollRule:
    """The limits at which the active segment is full."""

    segment_size: int
    """Bytes, by the broker's accounting (the sum of `size`)."""
    segment_span_ns: int | None = None
    """The time after the segment's first message at which a message opens the next segment; None for no limit."""


@dataclass(frozen=True)
class ActiveSegment:
    """The segment for the next message, unless it is full."""

    base: int
    bytes: int = 0
    first_ts_ns: int | None = None
    """The time of the first message in the segment; None while it is empty."""


@dataclass(frozen=True)
class Tail:
    """The end of a partition, where the next message is appended."""

    next_seq: int
    active: ActiveSegment | None = None
    """The active segment; None in a partition that never had one."""
    last_us: int | None = None
    """The broker's time of the last message, microseconds since the epoch; None if unknown."""


@dataclass(frozen=True)
class SegmentPart:
    """Adjacent messages, `start` to `end` (exclusive), for one segment."""

    active: ActiveSegment
    """The segment after these messages."""
    start: int
    end: int


def roll(
    active: ActiveSegment | None,
    seqs: np.ndarray,
    sizes: np.ndarray,
    ts_ns: np.ndarray,
    rule: RollRule,
) -> Iterator[SegmentPart]:
    """Split new messages, in order of their sequences, among segments; work grows with segments, not with messages.

    A new segment opens when the active one *has reached* `segment_size`, or at a message `segment_span_ns` or more
    younger than the first of the segment. Its base is the sequence of its first message; an empty active segment
    keeps its old base.

    Four messages of 60 bytes with segments of 100: each segment takes the message that makes it reach its size.

    >>> pieces = roll(None, np.arange(1, 5), np.full(4, 60), np.zeros(4, np.int64), RollRule(segment_size=100))
    >>> [(piece.active.base, piece.start, piece.end) for piece in pieces]
    [(1, 0, 2), (3, 2, 4)]

    Args:
        active: the active segment; None in a stream that never had one.
        seqs: int64, rising.
        sizes: int64, bytes of each message, above zero.
        ts_ns: int64, need not rise.
        rule: the limits at which a segment is full.
    """
    ends = np.cumsum(sizes)
    at = 0
    while at < len(seqs):
        if active is None or _is_full(active, int(ts_ns[at]), rule):
            active = ActiveSegment(int(seqs[at]))
        before = int(ends[at] - sizes[at])
        first_ts_ns = int(ts_ns[at]) if active.first_ts_ns is None else active.first_ts_ns
        # The message that reaches the size still belongs to the segment.
        last = int(np.searchsorted(ends, before + rule.segment_size - active.bytes))
        end = min(last + 1, len(seqs))
        if rule.segment_span_ns is not None:
            end = _first_not_before(ts_ns, at, end, first_ts_ns + rule.segment_span_ns)
        active = ActiveSegment(active.base, active.bytes + int(ends[end - 1]) - before, first_ts_ns)
        yield SegmentPart(active, at, end)
        at = end


def taken_whole(
    active: ActiveSegment | None, size: int, first_ts_ns: int, last_ts_ns: int, rule: RollRule
) -> ActiveSegment | None:
    """The active segment after messages that neither end nor open one; None if a message might.

    Args:
        active: the active segment before; None in a stream that never had one.
        size: total bytes of the messages.
        first_ts_ns: the time of the first message.
        last_ts_ns: the latest time of any message.
        rule: the limits at which a segment is full.
    """
    if active is None:
        return None
    begin = first_ts_ns if active.first_ts_ns is None else active.first_ts_ns
    after = ActiveSegment(active.base, active.bytes + size, begin)
    return None if _is_full(after, last_ts_ns, rule) else after


def _is_full(active: ActiveSegment, ts_ns: int, rule: RollRule) -> bool:
    if active.first_ts_ns is None:
        return False
    too_young = (
        rule.segment_span_ns is not None and ts_ns - active.first_ts_ns >= rule.segment_span_ns
    )
    return active.bytes >= rule.segment_size or too_young


def _first_not_before(ts_ns: np.ndarray, start: int, end: int, limit: int) -> int:
    """The first index in `start` to `end` with a time of `limit` or later, or else `end`.

    Each step reads twice as many times as the one before, so the cost is proportional to the segment's length.
    """
    step = _FIRST_STEP
    while start < end:
        late = np.flatnonzero(ts_ns[start : min(start + step, end)] >= limit)
        if len(late):
            return start + int(late[0])
        start, step = start + step, step * 2
    return end
