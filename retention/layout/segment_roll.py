"""Where segments begin: a segment takes messages until it has reached its size or its span of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_FIRST_LOOK = 4_096


@dataclass(frozen=True)
class RollRule:
    """When the active segment is full."""

    segment_size: int
    """Bytes, by the broker's accounting (the sum of `size`)."""
    segment_span_ns: int | None = None
    """A message this much younger than the segment's first opens the next one; None: time opens none."""


@dataclass(frozen=True)
class Active:
    """The segment that the next message goes to, unless it is full."""

    base: int
    bytes: int = 0
    first_ts_ns: int | None = None
    """Time of the first message in it; None while it holds none."""


@dataclass(frozen=True)
class Piece:
    """Neighbouring messages, `start` to before `end`, that go into one segment."""

    active: Active
    """That segment, with these messages in it."""
    start: int
    end: int


def roll(
    active: Active | None,
    seqs: np.ndarray,
    sizes: np.ndarray,
    ts_ns: np.ndarray,
    rule: RollRule,
) -> Iterator[Piece]:
    """Divide new messages, in order of their sequences, among segments; work is by segment, not by message.

    A new segment opens when the active one *has reached* `segment_size`, or at a message `segment_span_ns` or more
    younger than the first of the segment. Its base is the sequence of the first message put into it; an empty active
    segment is gone on with under its old base.

    Args:
        active: the segment that is open; None in a stream that never had one.
        seqs: int64, rising.
        sizes: int64, bytes of each message, above zero.
        ts_ns: int64, need not rise.
        rule: when a segment is full.
    """
    ends = np.cumsum(sizes)
    at = 0
    while at < len(seqs):
        if active is None or _is_full(active, int(ts_ns[at]), rule):
            active = Active(int(seqs[at]))
        before = int(ends[at] - sizes[at])
        first_ts_ns = int(ts_ns[at]) if active.first_ts_ns is None else active.first_ts_ns
        # The message with which the size is reached still belongs to the segment.
        last = int(np.searchsorted(ends, before + rule.segment_size - active.bytes))
        end = min(last + 1, len(seqs))
        if rule.segment_span_ns is not None:
            end = _first_not_before(ts_ns, at, end, first_ts_ns + rule.segment_span_ns)
        active = Active(active.base, active.bytes + int(ends[end - 1]) - before, first_ts_ns)
        yield Piece(active, at, end)
        at = end


def _is_full(active: Active, ts_ns: int, rule: RollRule) -> bool:
    if active.first_ts_ns is None:
        return False
    too_young = (
        rule.segment_span_ns is not None and ts_ns - active.first_ts_ns >= rule.segment_span_ns
    )
    return active.bytes >= rule.segment_size or too_young


def _first_not_before(ts_ns: np.ndarray, start: int, end: int, limit: int) -> int:
    """The first place in `start` to `end` with a time of `limit` or later, else `end`.

    Looks at twice as much each time, so that what it costs is in proportion to the segment found.
    """
    look = _FIRST_LOOK
    while start < end:
        late = np.flatnonzero(ts_ns[start : min(start + look, end)] >= limit)
        if len(late):
            return start + int(late[0])
        start, look = start + look, look * 2
    return end
