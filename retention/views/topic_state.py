"""What a topic holds now, partition by partition, and who holds what back (iggy `GetTopic`, `GetStats`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.config.topic import TopicConfig
from retention.opened import OpenedStream
from retention.passes.topics import TopicLook
from retention.passes.verdicts import segment_numbers
from retention.rules.topic_segments import STAYS
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
    held = messages_held(seen)
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


def messages_held(seen: TopicLook) -> dict[int, int]:
    """Partition → messages of segments that would go, had everybody read them."""
    stored = seen.segments.end >= seen.segments.start
    is_held = (seen.decided.held != STAYS)[stored][segment_numbers(seen.inventory.files)[0]]
    held = seen.inventory.files.filter(pa.array(is_held))
    summed = held.group_by("partition").aggregate([("messages", "sum")])
    return dict(
        zip(summed["partition"].to_pylist(), summed["messages_sum"].to_pylist(), strict=True)
    )


def _readers(seen: TopicLook, partition: int) -> Iterator[dict[str, Any]]:
    inventory = seen.inventory
    for reader, stored in sorted(seen.offsets.of.items()):
        if reader.partition == partition:
            told = info_of(inventory.stream, inventory.counters, reader, stored).as_json()
            yield {name: told[name] for name in _OF_READER}
