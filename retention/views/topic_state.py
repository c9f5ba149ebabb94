"""What a topic holds now, partition by partition, and who holds what back (iggy `GetTopic`, `GetStats`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from retention.config.topic import TopicConfig
from retention.opened import OpenedStream
from retention.passes.held import HeldSegments
from retention.passes.topics import TopicLook
from retention.views.offsets import info_of

_OF_READER = ("kind", "name", "offset", "stored_ns", "lag")


@dataclass(frozen=True)
class PartitionState:
    """The numbers of one partition."""

    partition: int
    messages: int
    bytes: int
    segments: int
    """With the active one, also if it holds nothing."""
    first_seq: int
    """Where its log begins; of an empty one `last_seq` + 1."""
    last_seq: int
    """Iggy's current offset: what was dropped keeps its number."""
    active: int
    """The first offset of the segment that is written to."""
    readers: tuple[dict[str, Any], ...]
    """Who has stored an offset: `kind`, `name`, `offset`, `stored_ns`, and `lag`, how many offsets follow."""
    held_back: int
    """Messages that would go, had everybody read them."""


@dataclass(frozen=True)
class TopicState:
    """The numbers of a topic."""

    topic: str
    iggy_stream: str | None
    partitions: tuple[PartitionState, ...]


def topic_state_of(opened: OpenedStream, topic: TopicConfig, seen: TopicLook | None) -> TopicState:
    """Count what each partition holds, from metadata.

    Args:
        opened: the topic.
        topic: its configuration.
        seen: what a pass over it would do; None: nothing was ever written to it.
    """
    partitions = () if seen is None else tuple(_partitions(seen, topic.partitions))
    return TopicState(opened.name, topic.stream, partitions)


def _partitions(seen: TopicLook, count: int) -> Iterator[PartitionState]:
    files, counters = seen.inventory.files, seen.inventory.counters
    waiting = seen.plan.held_segments or HeldSegments()
    held = {one.partition: one.messages for one in waiting.partitions}
    for partition in range(count):
        mine = files.filter(pc.equal(files["partition"], partition))
        starts = seen.segments.start[seen.segments.partition == partition]
        next_seq = counters.next_seq.get(partition, 0)
        yield PartitionState(
            partition,
            messages=pc.sum(mine["messages"], min_count=0).as_py(),
            bytes=pc.sum(mine["bytes"], min_count=0).as_py(),
            segments=len(starts),
            first_seq=next_seq if not mine.num_rows else pc.min(mine["min_seq"]).as_py(),
            last_seq=next_seq - 1,
            active=int(starts.max(initial=0)),
            readers=tuple(_readers(seen, partition)),
            held_back=held.get(partition, 0),
        )


def _readers(seen: TopicLook, partition: int) -> Iterator[dict[str, Any]]:
    inventory = seen.inventory
    for reader, stored in sorted(seen.offsets.of.items()):
        if reader.partition == partition:
            told = info_of(inventory.stream, inventory.counters, reader, stored).as_json()
            yield {name: told[name] for name in _OF_READER}
