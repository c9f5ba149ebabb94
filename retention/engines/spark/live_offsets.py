"""Offsets and ranges of sequences of a live stream, and the refusals to read where messages are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from retention.errors import RefusedError

_LOSS = "failOnDataLoss"
_ACCEPT = f"{_LOSS}=false goes on with what is there"


@dataclass(frozen=True)
class LiveState:
    """The state of a live stream at one moment."""

    title: str
    """The stream and its server, for sentences."""
    created: str
    """The server's text; the only identity of a stream (a restored one has a new one, too)."""
    first_seq: int
    """The first sequence that the stream holds, or would hold; at least 1."""
    last_seq: int
    """The last sequence that was assigned; 0: none."""


@dataclass(frozen=True)
class Offset:
    """The place in a stream up to which a streaming query has read."""

    created: str
    next: int
    """The first sequence that was not read."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Offset:
        """The offset of a checkpoint."""
        return cls(str(value["created"]), int(value["next"]))

    def as_json(self) -> dict[str, Any]:
        """The offset for a checkpoint."""
        return {"created": self.created, "next": self.next}


@dataclass(frozen=True)
class Reach:
    """The decisions of a query's options."""

    begin: int
    """The sequence at which a query begins: no message below it is wanted."""
    fails_on_loss: bool
    """Whether messages that were removed before they were read are an error."""


@dataclass(frozen=True)
class Span:
    """Sequences `first` to `last` of the stream with this `created`."""

    first: int
    last: int
    created: str
    fails_on_loss: bool

    def shares(self, count: int) -> list[Span]:
        """The span in at most `count` spans of about the same number of sequences.

        >>> [(one.first, one.last) for one in Span(1, 10, "", True).shares(3)]
        [(1, 3), (4, 6), (7, 10)]
        """
        total = self.last - self.first + 1
        parts = max(1, min(count, total))
        edges = [self.first + total * part // parts for part in range(parts + 1)]
        return [
            Span(low, high - 1, self.created, self.fails_on_loss) for low, high in pairwise(edges)
        ]


def first_offset(state: LiveState, reach: Reach) -> Offset:
    """The offset of a query that has read nothing.

    Raises:
        RefusedError: the stream ends before the sequence at which the query begins.
    """
    if reach.begin > state.last_seq + 1:
        raise RefusedError(
            f"{state.title} ends at sequence {state.last_seq:,}, and the option `start` is {reach.begin:,}; begin at "
            f"{state.last_seq + 1:,} or before"
        )
    return Offset(state.created, reach.begin)


def latest_offset(start: Offset, state: LiveState, reach: Reach, limit: int | None) -> Offset:
    """The end of the next batch: the end of the stream, or at most `limit` sequences after `start`.

    Raises:
        RefusedError: the stream was made anew, or lost messages that were not read, and the query fails on that.
    """
    begin = _resumed(start, state, reach)
    end = state.last_seq + 1
    if limit is not None:
        end = min(end, begin + limit)
    return Offset(state.created, max(begin, end))


def span_of(start: Offset, end: Offset, state: LiveState, reach: Reach) -> Span | None:
    """The sequences of a batch, which may be repeated from a checkpoint; None: there is nothing to read.

    Raises:
        RefusedError: the stream was made anew, or lost messages of the batch, and the query fails on that.
    """
    if reach.fails_on_loss:
        _refuse_other(end.created, end.next, state)
        _refuse_lost(start, end.next, state, reach)
    if state.created != end.created:
        return None
    begin = start.next if start.created == end.created else 1
    first, last = max(begin, state.first_seq), min(end.next - 1, state.last_seq)
    if first > last:
        return None
    fails = reach.fails_on_loss and begin > reach.begin
    return Span(first, last, end.created, fails_on_loss=fails)


def refuse_changed(span: Span, state: LiveState, read_to: int) -> None:
    """Refuse the rows of a task whose stream was made anew, or lost messages that the task should have read.

    Args:
        span: the task's.
        state: the stream's, before or after the task has read.
        read_to: all sequences from the first one to this one were read.

    Raises:
        RefusedError: the rows are of another stream, or some are missing and the query fails on that.
    """
    _refuse_other(span.created, span.first, state)
    removed = min(state.first_seq - 1, span.last)
    if span.fails_on_loss and removed > read_to:
        raise _missed(state, read_to + 1, removed)


def _resumed(start: Offset, state: LiveState, reach: Reach) -> int:
    """The first sequence after `start` that the stream may hold."""
    if reach.fails_on_loss:
        _refuse_other(start.created, start.next, state)
        _refuse_lost(start, start.next, state, reach)
    if start.created != state.created:
        return state.first_seq
    return max(min(start.next, state.last_seq + 1), state.first_seq)


def _refuse_other(created: str, position: int, state: LiveState) -> None:
    if state.created != created:
        raise RefusedError(
            f"{state.title} was created at {state.created}, and the one that was read at {created}: it was deleted and "
            f"made anew, or restored; nothing more was read; begin a query with another checkpoint (start={position} "
            f"if it was restored), or {_LOSS}=false reads the new one from its beginning"
        )


def _refuse_lost(start: Offset, end: int, state: LiveState, reach: Reach) -> None:
    """Refuse a stream that lost its end, or messages after `start`."""
    if state.last_seq < end - 1:
        raise RefusedError(
            f"{state.title} ends at sequence {state.last_seq:,}, and was read or planned to {end - 1:,}: its newest "
            f"messages are lost there (a crash, or a replica that lags); nothing more was read; {_ACCEPT}"
        )
    if start.next > reach.begin and state.first_seq > start.next:
        raise _missed(state, start.next, state.first_seq - 1)


def _missed(state: LiveState, first: int, last: int) -> RefusedError:
    return RefusedError(
        f"{state.title} removed sequences {first:,} to {last:,} ({last - first + 1:,}) before they were read; nothing "
        f"more was read; raise the stream's limits or run the query more often; {_ACCEPT}"
    )
