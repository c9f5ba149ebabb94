"""What a topic holds now, partition by partition, and who holds what back (iggy `GetTopic`, `GetStats`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config.topic import TopicConfig
from retention.opened import OpenedStream
from retention.passes.topics import TopicLook
from retention.passes.verdicts import segment_numbers
from retention.rules.iggy import topic_pass
from retention.rules.spans import Array
from retention.rules.topic_segments import STAYS, TopicSegments, with_sealed
from retention.topic_policy import TopicPolicy
from retention.units import MICROSECOND
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
    waits_for_roll: int
    """Messages that would go, were the active segment sealed."""
    roll_due_ns: int | None
    """When `roll_after` has the next publish or pass seal the active segment; None: size alone does."""


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
    partitions = () if seen is None else tuple(_partitions(seen, topic.policy()))
    return TopicState(opened.name, topic.stream, partitions)


def _partitions(seen: TopicLook, topic: TopicPolicy) -> Iterator[PartitionState]:
    files, counters = seen.inventory.files, seen.inventory.counters
    held, waiting = messages_held(seen), _messages_waiting(seen, topic)
    for partition in range(topic.partitions):
        mine = files.filter(pc.equal(files["partition"], partition))
        at = np.flatnonzero(seen.found.partition == partition)
        next_seq = counters.next_seq.get(partition, 0)
        yield PartitionState(
            partition,
            messages=pc.sum(mine["messages"], min_count=0).as_py(),
            bytes=pc.sum(mine["bytes"], min_count=0).as_py(),
            segments=len(at),
            first_seq=next_seq if not mine.num_rows else pc.min(mine["min_seq"]).as_py(),
            last_seq=next_seq - 1,
            active=int(seen.found.start[at].max(initial=0)),
            readers=tuple(_readers(seen, partition)),
            held_back=held.get(partition, 0),
            waits_for_roll=waiting.get(partition, 0),
            roll_due_ns=_roll_due_ns(seen.found, at, topic),
        )


def _roll_due_ns(found: TopicSegments, at: Array, topic: TopicPolicy) -> int | None:
    """When age seals the last one of a partition's segments."""
    if topic.roll_after_us is None or not len(at) or not found.first_us[at[-1]]:
        return None
    return (int(found.first_us[at[-1]]) + topic.roll_after_us) * MICROSECOND


def _messages_waiting(seen: TopicLook, topic: TopicPolicy) -> dict[int, int]:
    """Partition → messages of its active segment that would go, were it sealed."""
    sealed = with_sealed(seen.found, np.ones(len(seen.found), dtype=bool))
    now_us = seen.plan.as_of_ns // MICROSECOND
    offsets = seen.offsets
    would = topic_pass(sealed, topic, now_us, offsets.barriers, offsets.watermarks)
    is_stored = sealed.end >= sealed.start
    active = ~seen.found.sealed[seen.found.end >= seen.found.start]
    return _messages(seen, active & (would.fates[is_stored] != STAYS))


def messages_held(seen: TopicLook) -> dict[int, int]:
    """Partition → messages of segments that would go, had everybody read them."""
    return _messages(seen, (seen.decided.held != STAYS)[seen.segments.end >= seen.segments.start])


def _messages(seen: TopicLook, chosen: Array) -> dict[int, int]:
    """Partition → messages of some segments, chosen among those that hold any by a mask."""
    files = seen.inventory.files.filter(pa.array(chosen[segment_numbers(seen.inventory.files)[0]]))
    summed = files.group_by("partition").aggregate([("messages", "sum")])
    return dict(
        zip(summed["partition"].to_pylist(), summed["messages_sum"].to_pylist(), strict=True)
    )


def _readers(seen: TopicLook, partition: int) -> Iterator[dict[str, Any]]:
    inventory = seen.inventory
    for reader, stored in sorted(seen.offsets.of.items()):
        if reader.partition == partition:
            told = info_of(inventory.stream, inventory.counters, reader, stored).as_json()
            yield {name: told[name] for name in _OF_READER}
