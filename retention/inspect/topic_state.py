"""A topic's current contents by partition, effective settings, and readers that protect messages (iggy `GetTopic`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.config.topic import TopicConfig
from retention.config.topic_stream import TopicStream
from retention.context.context import OpenedStream
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.inspect.offsets import info_of
from retention.inspect.partition_counts import PartitionCounts, partition_counts
from retention.plan.build import segment_numbers
from retention.plan.protected import ProtectedSegments
from retention.planners.topic import TopicPlanning
from retention.rules.iggy.evaluate import topic_pass
from retention.rules.iggy.segments import STAYS, TopicSegments, with_sealed

_OF_READER = ("kind", "name", "offset", "stored_ns", "lag")


@dataclass(frozen=True)
class PartitionState(PartitionCounts):
    """The numbers of one partition, and its readers."""

    readers: tuple[dict[str, object], ...] = ()
    """Readers with a stored offset: `kind`, `name`, `offset`, `stored_ns`, and `lag`, the number of offsets after it.
    """
    held_back: int = 0
    """Messages that would be due, had all readers read them."""
    waits_for_roll: int = 0
    """Messages that would be due if the active segment were sealed."""
    roll_due_ns: int | None = None
    """Instant from which `roll_after` makes the next publish or pass seal the active segment; None: only size does."""


@dataclass(frozen=True)
class SettingsState:
    """The effective settings of a topic; None: unlimited."""

    message_expiry_us: int | None
    max_topic_size: int | None
    segment_size: int
    defaulted: tuple[str, ...]
    """Names of the settings that are the server's defaults."""


@dataclass(frozen=True)
class TopicState:
    """The numbers of a topic."""

    topic: str
    iggy_stream: str | None
    settings: SettingsState
    partitions: tuple[PartitionState, ...]


def topic_state_of(
    opened: OpenedStream, topic: TopicConfig, planning: TopicPlanning | None
) -> TopicState:
    """Count the contents of each partition, from metadata.

    Args:
        opened: the topic.
        topic: its configuration.
        planning: the plan of a pass over it; None: it was never written to.
    """
    partitions = () if planning is None else tuple(_partitions(planning, topic.policy()))
    return TopicState(opened.name, topic.stream, _settings(opened, topic), partitions)


def _settings(opened: OpenedStream, topic: TopicConfig) -> SettingsState:
    policy, kept = topic.policy(), opened.config
    defaulted = kept.settings.defaulted if isinstance(kept, TopicStream) else ()
    return SettingsState(
        policy.message_expiry_us, policy.max_topic_size, policy.segment_size, defaulted
    )


def _partitions(planning: TopicPlanning, topic: TopicPolicy) -> Iterator[PartitionState]:
    held_segments = planning.plan.held_segments or ProtectedSegments()
    held = {partition.partition: partition.messages for partition in held_segments.partitions}
    waiting, due_ns = (
        _messages_waiting(planning, topic),
        _roll_due_ns(planning.stored_segments, topic),
    )
    for counts in partition_counts(planning.inventory, planning.stored_segments, topic.partitions):
        yield PartitionState(
            **vars(counts),
            readers=tuple(_readers(planning, counts.partition)),
            held_back=held.get(counts.partition, 0),
            waits_for_roll=waiting.get(counts.partition, 0),
            roll_due_ns=due_ns.get(counts.partition),
        )


def _roll_due_ns(segments: TopicSegments, topic: TopicPolicy) -> dict[int, int]:
    """Partition → the instant at which age seals its active segment, if that has a message."""
    if topic.roll_after_us is None:
        return {}
    active = ~segments.sealed & (segments.first_us != 0)
    due_us = segments.first_us[active] + topic.roll_after_us
    return dict(
        zip(segments.partition[active].tolist(), (due_us * MICROSECOND).tolist(), strict=True)
    )


def _messages_waiting(planning: TopicPlanning, topic: TopicPolicy) -> dict[int, int]:
    """Partition → messages of its active segment that would be due, were it sealed."""
    sealed = with_sealed(
        planning.stored_segments, np.ones(len(planning.stored_segments), dtype=bool)
    )
    now_us = planning.plan.header.as_of_ns // MICROSECOND
    offsets = planning.offsets
    would = topic_pass(sealed, topic, now_us, offsets.barriers, offsets.watermarks)
    is_stored = sealed.end >= sealed.start
    active = ~planning.stored_segments.sealed[
        planning.stored_segments.end >= planning.stored_segments.start
    ]
    chosen = pa.array(
        (active & (would.fates[is_stored] != STAYS))[segment_numbers(planning.inventory.files)[0]]
    )
    summed = (
        planning.inventory.files.filter(chosen)
        .group_by("partition")
        .aggregate([("messages", "sum")])
    )
    return dict(
        zip(summed["partition"].to_pylist(), summed["messages_sum"].to_pylist(), strict=True)
    )


def _readers(planning: TopicPlanning, partition: int) -> Iterator[dict[str, object]]:
    inventory = planning.inventory
    for reader, stored in sorted(planning.offsets.of.items()):
        if reader.partition == partition:
            fields = info_of(inventory.stream, inventory.counters, reader, stored).as_json()
            yield {name: fields[name] for name in _OF_READER}
