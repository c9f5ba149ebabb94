"""The position of a synced topic at its server, as its commits keep it, and the reasons not to go on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from retention.context.context import OpenedStream
from retention.context.log_end import LogEnd
from retention.context.position import Position, locate
from retention.context.topic import topic_of
from retention.core.counters import Counters
from retention.core.units import MICROSECOND, format_instant
from retention.errors import RefusedError
from retention.history.runs import history_of
from retention.iggy.wire import PartitionInfo, TopicInfo
from retention.ingest.idempotency import BatchIdentity, NextBatch

WRITER = "iggy-sync"
"""The writer name under which commits count themselves, and the prefix of what they keep."""
_TOPIC, _PARTITION, _LAST = (f"{WRITER}/{kind}" for kind in ("topic", "partition", "last"))
_MARK_BITS = 20
_MOST_MARKED = 1 << (63 - _MARK_BITS)
"""The offset from which a counter has no room for a mark, and messages are not compared: eight trillion."""


@dataclass(frozen=True)
class PartitionPosition:
    """The position in one partition."""

    next_offset: int = 0
    """The first offset that was not read."""
    created_us: int | None = None
    """The time of the creation of the server's partition, microseconds; None: nothing was read from it."""
    mark: int | None = None
    """The mark of the last message that was read (see `mark_of`)."""


@dataclass(frozen=True)
class TopicPosition:
    """The position of a topic: commits so far, and each partition."""

    commits: int | None
    """None: it was never synced."""
    partitions: Mapping[int, PartitionPosition]

    def at(self, partition: int) -> PartitionPosition:
        """The position in a partition, at its beginning if nothing was read."""
        return self.partitions.get(partition, PartitionPosition())

    @property
    def identity(self) -> BatchIdentity:
        """The identity of the next commit."""
        return NextBatch(WRITER, (self.commits or 0) + 1, after=self.commits)


def mark_of(checksum: int) -> int:
    """The part of a message's checksum that a counter can keep beside its offset."""
    return checksum & (1 << _MARK_BITS) - 1


def counters_after(
    info: TopicInfo, before: TopicPosition, read: Mapping[int, PartitionPosition]
) -> dict[str, int]:
    """The counters of a commit, which must rise: identities once, and the offset and mark after each partition.

    Args:
        info: the server's topic.
        before: the position before the commit.
        read: partition → the position after it, of those that were read.
    """
    kept = {} if before.commits is not None else {_TOPIC: info.created_us}
    for number, position in read.items():
        if position.created_us is not None and before.at(number).created_us is None:
            kept[f"{_PARTITION}/{number}"] = position.created_us
        if position.mark is not None and position.next_offset < _MOST_MARKED:
            kept[f"{_LAST}/{number}"] = position.next_offset << _MARK_BITS | position.mark
    return kept


def start_of(opened: OpenedStream, info: TopicInfo) -> TopicPosition:
    """The point at which to begin.

    Raises:
        RefusedError: the server's topic or a partition is not the one that was copied, or was purged; or the topic
            holds messages that did not come from it, or lists fewer partitions.
    """
    _refuse_more_partitions(opened, info)
    if not opened.table.exists():
        history = history_of(opened.warehouse, opened.name)
        if any(history.next_seqs(history.last_epoch()).values()):
            raise RefusedError(
                f"{opened.name}: it was dropped or lost after it had messages, and offsets are never assigned twice; "
                f"{_NOTHING}"
            )
        return TopicPosition(None, {})
    position = locate(opened)
    kept = position_of(opened, position)
    batches = position.snapshot.counters.batches
    if kept.commits is None and any(each.next_offset for each in kept.partitions.values()):
        raise RefusedError(f"{opened.name}: it holds messages that no sync copied; {_NOTHING}")
    if kept.commits is not None and batches.get(_TOPIC) != info.created_us:
        there, here = _instant(info.created_us), _instant(batches.get(_TOPIC, 0))
        raise RefusedError(
            f"{opened.name}: topic {info.name} on the server was deleted and made anew (created {there}, and the "
            f"copied one {here}); {_NOTHING}, and keep this one as it is"
        )
    for partition in info.partitions:
        _refuse_another(opened, info, partition, kept.at(partition.number))
    return kept


def position_of(opened: OpenedStream, position: Position) -> TopicPosition:
    """The position that a topic's table keeps."""
    counters = position.snapshot.counters
    ends = {n: position.tail(n).next_seq for n in range(topic_of(opened).partitions)}
    partitions = {
        number: PartitionPosition(end, *_kept(counters, number, end))
        for number, end in ends.items()
    }
    return TopicPosition(counters.batches.get(WRITER), partitions)


def refuse_moved(opened: OpenedStream, end: LogEnd, kept: TopicPosition) -> None:
    """Refuse to commit where others wrote since a batch began.

    Raises:
        RefusedError: another writer has moved the end of a partition.
    """
    listed = range(topic_of(opened).partitions)
    if any(end.tail(number).next_seq != kept.at(number).next_offset for number in listed):
        raise RefusedError(f"{opened.name}: others wrote to it while it was synced; {_NOTHING}")


def partition_notes(opened: OpenedStream, info: TopicInfo, kept: TopicPosition) -> Iterator[str]:
    """A sentence for each partition of the topic that the server no longer has."""
    there = {partition.number for partition in info.partitions}
    for number, position in sorted(kept.partitions.items()):
        if number not in there and position.next_offset:
            yield (
                f"partition {number} was deleted on the server; its messages up to offset {position.next_offset - 1:,} "
                "are kept here"
            )


def replaced_error(opened: OpenedStream, partition: int, offset: int) -> RefusedError:
    """The error for a partition that has another message at the last offset that was read."""
    return RefusedError(
        f"{opened.name}: the server's message {offset:,} of partition {partition} is not the one that was copied: the "
        "topic was purged there, or the server lost its newest messages in a crash, and offsets began again; "
        f"{_NOTHING}, and keep this one as it is"
    )


_NOTHING = (
    "nothing was copied; keep the server's messages in a topic of their own: sync into a new topic"
)


def _kept(counters: Counters, number: int, next_offset: int) -> tuple[int | None, int | None]:
    """The time of the creation of a partition that was read, and the mark of its last message."""
    batches = counters.batches
    offset, mark = divmod(batches.get(f"{_LAST}/{number}", -1), 1 << _MARK_BITS)
    return batches.get(f"{_PARTITION}/{number}"), mark if offset == next_offset else None


def _refuse_more_partitions(opened: OpenedStream, info: TopicInfo) -> None:
    listed = topic_of(opened).partitions
    there = max((partition.number + 1 for partition in info.partitions), default=0)
    if there > listed:
        raise RefusedError(
            f"{opened.name}: topic {info.name} on the server has partition {there - 1}, and the topic here has "
            f"{listed}, counted from 0; nothing was copied; write partitions: {there}"
        )


def _refuse_another(
    opened: OpenedStream, info: TopicInfo, there: PartitionInfo, here: PartitionPosition
) -> None:
    if here.created_us not in {None, there.created_us}:
        raise RefusedError(
            f"{opened.name}: partition {there.number} of topic {info.name} was deleted on the server and made anew; "
            f"{_NOTHING}, and keep this one as it is"
        )
    if there.end < here.next_offset:
        end = f"ends at {there.end - 1:,} on the server" if there.end else "is empty on the server"
        raise RefusedError(
            f"{opened.name}: partition {there.number} holds offsets up to {here.next_offset - 1:,}, and {end}: the "
            f"topic was purged there, or the server lost its newest messages in a crash; {_NOTHING}, and keep this one "
            "as it is"
        )


def _instant(us: int) -> str:
    return format_instant(us * MICROSECOND)
