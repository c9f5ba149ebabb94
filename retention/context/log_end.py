"""The end of a log on which an append is based, and the end that its own commit leaves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from retention.context.context import OpenedStream
from retention.context.own_end import KnownEnd, LastCommit
from retention.context.position import Position
from retention.core.units import MICROSECOND
from retention.datafile.segment_writer import Staged
from retention.layout.segment_roll import ActiveSegment, Tail
from retention.schemas.files import FileStats

LogEnd = Position | KnownEnd
"""The end of a log on which an append is based that looks at no stored message."""


def last_commit(opened: OpenedStream, end: LogEnd, staged: Staged, run: str) -> LastCommit | None:
    """The commit of staged files at an end of a log; None if the table has to be opened for each append.

    Args:
        opened: the stream or topic.
        end: the end of its log before the commit.
        staged: the messages that were committed; no others were removed.
        run: the name of the commit in the log.
    """
    head = opened.store.head(end.snapshot) if isinstance(end, Position) else end.head
    if head is None:
        return None
    partitions = range(opened.config.partitions)
    tails = {number: _tail_after(number, end.tail(number), staged) for number in partitions}
    return LastCommit(run, head, tails, end.is_empty and not staged.stats)


def _tail_after(partition: int, tail: Tail, staged: Staged) -> Tail:
    """The end of a partition after staged messages, as it would be read from the table."""
    files = [row for row in staged.stats if row["partition"] == partition]
    last_us = tail.last_us
    if files:
        last_us = max(files, key=lambda row: row["max_seq"])["last_ts_ns"] // MICROSECOND
    next_seq = staged.next_seq.get(partition, tail.next_seq)
    return Tail(next_seq, reduce(_together, _added(partition, files, staged), tail.active), last_us)


def _added(partition: int, files: list[FileStats], staged: Staged) -> Iterator[ActiveSegment]:
    """The parts of segments that staged messages add to a partition, in order of sequences."""
    if partition in staged.open_base:
        yield ActiveSegment(staged.open_base[partition])
    for file in sorted(files, key=lambda row: row["min_seq"]):
        yield ActiveSegment(file["segment"], file["bytes"], file["first_ts_ns"])


def _together(before: ActiveSegment | None, after: ActiveSegment) -> ActiveSegment:
    """The active segment of a partition, from that of its earlier files and that of its later ones."""
    if before is None:
        return after
    if before.base != after.base:
        return max(before, after, key=lambda segment: segment.base)
    first_ts_ns = after.first_ts_ns if before.first_ts_ns is None else before.first_ts_ns
    return ActiveSegment(after.base, before.bytes + after.bytes, first_ts_ns)
