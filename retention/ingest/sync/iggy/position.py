"""The position of a synced topic at its server, as its commits keep it, and the reasons not to go on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from retention.context.context import OpenedStream
from retention.context.position import Position, locate
from retention.context.topic import topic_of
from retention.core.inventory import Counters
from retention.errors import RefusedError
from retention.history.runs import history_of
from retention.ingest.idempotency import BatchIdentity, NextBatch
from retention.iggy.wire import PartitionInfo, TopicInfo

WRITER = "iggy-sync"
"""The writer name under which commits count themselves, and the prefix of what they keep."""
_TOPIC = f"{WRITER}/topic"
_INT63 = 2**63 - 1


@dataclass(frozen=True)
class PartitionPosition:
    """The position in one partition."""

    next_offset: int = 0
    """The first offset that was not read."""
    created_us: int | None = None
    """When the server's partition was created; None: nothing was read from it."""
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
    """The part of a message's checksum that a counter can keep; it covers the id, so that no other message has it."""
    return checksum & _INT63


def counters_after(info: TopicInfo, read: Mapping[int, PartitionPosition]) -> dict[str, int]:
    """The counters of a commit: the identities of the topic and of the partitions that were read, and their marks."""
    kept = {_TOPIC: info.created_us}
    for number, position in read.items():
        if position.created_us is not None and position.mark is not None:
            kept[f"{WRITER}/partition/{number}"] = position.created_us
            kept[f"{WRITER}/last/{number}"] = position.mark
    return kept


def start_of(opened: OpenedStream, info: TopicInfo) -> TopicPosition:
    """The point at which to begin.

    Raises:
        RefusedError: the server's topic or a partition is not the one that was copied, or was purged; or the topic holds
            messages that did not come from it, or lists fewer partitions.
    """
    _refuse_more_partitions(opened, info)
    if not opened.store.exists():
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
        raise RefusedError(
            f"{opened.name}: topic {info.name} on the server was deleted and made anew (created {info.created_us} "
            f"microseconds after 1970, and the copied one {batches.get(_TOPIC)}); {_NOTHING}, and keep this one as it is"
        )
    for partition in info.partitions:
        _refuse_another(opened, info, partition, kept.at(partition.number))
    return kept


def position_of(opened: OpenedStream, position: Position) -> TopicPosition:
    """The position that a topic's table keeps."""
    counters = position.snapshot.counters
    partitions = {
        number: PartitionPosition(position.tail(number).next_seq, *_kept(counters, number))
        for number in range(topic_of(opened).partitions)
    }
    return TopicPosition(counters.batches.get(WRITER), partitions)


def refuse_moved(opened: OpenedStream, position: Position, kept: TopicPosition) -> None:
    """Refuse to commit where others wrote since a batch began.

    Raises:
        RefusedError: another writer has moved the end of a partition.
    """
    if position_of(opened, position).partitions != dict(kept.partitions):
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
        f"topic was purged there, or the server lost its newest messages in a crash, and offsets began again; {_NOTHING}, "
        "and keep this one as it is"
    )


_NOTHING = "nothing was copied; keep the server's messages in a topic of their own: sync into a new topic"


def _kept(counters: Counters, number: int) -> tuple[int | None, int | None]:
    batches = counters.batches
    return batches.get(f"{WRITER}/partition/{number}"), batches.get(f"{WRITER}/last/{number}")


def _refuse_more_partitions(opened: OpenedStream, info: TopicInfo) -> None:
    listed = topic_of(opened).partitions
    there = max((partition.number + 1 for partition in info.partitions), default=0)
    if there > listed:
        raise RefusedError(
            f"{opened.name}: topic {info.name} on the server has partition {there - 1}, and the topic here has {listed}, "
            f"counted from 0; nothing was copied; write partitions: {there}"
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
        raise RefusedError(
            f"{opened.name}: partition {there.number} holds offsets up to {here.next_offset - 1:,}, and ends on the "
            f"server before {there.end:,}: the topic was purged there, or the server lost its newest messages in a crash; "
            f"{_NOTHING}, and keep this one as it is"
        )
