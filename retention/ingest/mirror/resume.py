"""The position at which a stream resumes with an origin, from its commits, and the reasons not to resume."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.context.position import locate, next_seq_without_table
from retention.core.counters import Counters
from retention.errors import RefusedError
from retention.ingest.mirror.origin import MirrorOrigin, OriginView


def next_seq_of(target: OpenedStream) -> int:
    """The next sequence of a stream, which need not exist."""
    if not target.table.exists():
        return next_seq_without_table(target)
    return locate(target).next_seq


def counters_of(target: OpenedStream) -> Counters:
    """The counters of a stream, which need not exist."""
    return target.store.snapshot().counters if target.table.exists() else Counters()


def first_of(stream: str, view: OriginView, done: int | None, next_seq: int) -> int:
    """The first sequence of an origin to read.

    Args:
        stream: the target stream.
        view: the origin.
        done: the result of `position_of`.
        next_seq: the target's next sequence.

    Raises:
        RefusedError: a mirror has other messages after its position, or more than its origin.
    """
    if view.origin.kind != "mirror":
        return view.start(done)
    may_hold = view.last_seq if done is None else done
    if next_seq - 1 > may_hold:
        raise RefusedError(
            f"{stream}: as a mirror of {view.origin.source.name} it can hold sequences up to {may_hold:,}, and its "
            f"next is {next_seq:,}: others wrote to it, or purged it beyond its end; nothing was copied; mirror into a "
            "new stream"
        )
    # A backup of the origin may have been imported: the mirror continues after it.
    return max(view.start(done), next_seq)


def position_of(
    stream: str, origin: MirrorOrigin, view: OriginView | None, counters: Counters
) -> int | None:
    """The last sequence of the origin that was read; None: the origin is new to the stream.

    Raises:
        RefusedError: the origin is not the table that was read before, or is shorter now.
    """
    name = origin.source.name
    done = counters.batches.get(origin.writer)
    if done is None:
        return None
    if view is None or counters.batches.get(view.table) != done:
        another = ", is another stream, or has other filters" if origin.kind == "mirror" else ""
        raise RefusedError(
            f"{stream}: its origin {name} was deleted or recreated since the last run{another}, and its sequences are "
            "not those that were copied; nothing was copied; take from it into a new stream"
        )
    if done > view.last_seq:
        raise RefusedError(
            f"{stream}: sequences of its origin {name} up to {done:,} were copied already, and its last is "
            f"{view.last_seq:,} now: it was replaced by an older state; nothing was copied; take from it into a new "
            "stream"
        )
    return done
