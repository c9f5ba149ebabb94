"""What a topic holds now, partition by partition, by which settings, and who holds what back (iggy `GetTopic`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from retention.config.topic import TopicConfig, TopicStream
from retention.opened import OpenedStream
from retention.passes.held import HeldSegments
from retention.passes.topics import TopicLook
from retention.views.offsets import info_of
from retention.views.partition_counts import PartitionCounts, partition_counts

_OF_READER = ("kind", "name", "offset", "stored_ns", "lag")


@dataclass(frozen=True)
class PartitionState(PartitionCounts):
    """The numbers of one partition, and who reads it."""

    readers: tuple[dict[str, Any], ...] = ()
    """Who has stored an offset: `kind`, `name`, `offset`, `stored_ns`, and `lag`, how many offsets follow."""
    held_back: int = 0
    """Messages that would go, had everybody read them."""


@dataclass(frozen=True)
class SettingsState:
    """The settings that count for a topic; None is no limit."""

    message_expiry_us: int | None
    max_topic_size: int | None
    segment_size: int
    defaulted: tuple[str, ...]
    """Those that are the server's defaults."""


@dataclass(frozen=True)
class TopicState:
    """The numbers of a topic."""

    topic: str
    iggy_stream: str | None
    settings: SettingsState
    partitions: tuple[PartitionState, ...]


def topic_state_of(opened: OpenedStream, topic: TopicConfig, seen: TopicLook | None) -> TopicState:
    """Count what each partition holds, from metadata.

    Args:
        opened: the topic.
        topic: its configuration.
        seen: what a pass over it would do; None: nothing was ever written to it.
    """
    partitions = () if seen is None else tuple(_partitions(seen, topic.partitions))
    return TopicState(opened.name, topic.stream, _settings(opened, topic), partitions)


def _settings(opened: OpenedStream, topic: TopicConfig) -> SettingsState:
    policy, kept = topic.policy(), opened.config
    defaulted = kept.settings.defaulted if isinstance(kept, TopicStream) else ()
    return SettingsState(
        policy.message_expiry_us, policy.max_topic_size, policy.segment_size, defaulted
    )


def _partitions(seen: TopicLook, count: int) -> Iterator[PartitionState]:
    waiting = seen.plan.held_segments or HeldSegments()
    held = {one.partition: one.messages for one in waiting.partitions}
    for counts in partition_counts(seen.inventory, seen.segments, count):
        yield PartitionState(
            **vars(counts),
            readers=tuple(_readers(seen, counts.partition)),
            held_back=held.get(counts.partition, 0),
        )


def _readers(seen: TopicLook, partition: int) -> Iterator[dict[str, Any]]:
    inventory = seen.inventory
    for reader, stored in sorted(seen.offsets.of.items()):
        if reader.partition == partition:
            told = info_of(inventory.stream, inventory.counters, reader, stored).as_json()
            yield {name: told[name] for name in _OF_READER}
