"""What a topic holds now, partition by partition, by which settings, and who holds what back (iggy `GetTopic`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
    """The numbers of one partition, and who reads it."""

    readers: tuple[dict[str, Any], ...] = ()
    """Who has stored an offset: `kind`, `name`, `offset`, `stored_ns`, and `lag`, how many offsets follow."""
    held_back: int = 0
    """Messages that would go, had everybody read them."""
    waits_for_roll: int = 0
    """Messages that would go, were the active segment sealed."""
    roll_due_ns: int | None = None
    """When `roll_after` has the next publish or pass seal the active segment; None: size alone does."""


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


def topic_state_of(
    opened: OpenedStream, topic: TopicConfig, seen: TopicPlanning | None
) -> TopicState:
    """Count what each partition holds, from metadata.

    Args:
        opened: the topic.
        topic: its configuration.
        seen: what a pass over it would do; None: nothing was ever written to it.
    """
    partitions = () if seen is None else tuple(_partitions(seen, topic.policy()))
    return TopicState(opened.name, topic.stream, _settings(opened, topic), partitions)


def _settings(opened: OpenedStream, topic: TopicConfig) -> SettingsState:
    policy, kept = topic.policy(), opened.config
    defaulted = kept.settings.defaulted if isinstance(kept, TopicStream) else ()
    return SettingsState(
        policy.message_expiry_us, policy.max_topic_size, policy.segment_size, defaulted
    )


def _partitions(seen: TopicPlanning, topic: TopicPolicy) -> Iterator[PartitionState]:
    held_segments = seen.plan.held_segments or ProtectedSegments()
    held = {one.partition: one.messages for one in held_segments.partitions}
    waiting, due_ns = _messages_waiting(seen, topic), _roll_due_ns(seen.found, topic)
    for counts in partition_counts(seen.inventory, seen.found, topic.partitions):
        yield PartitionState(
            **vars(counts),
            readers=tuple(_readers(seen, counts.partition)),
            held_back=held.get(counts.partition, 0),
            waits_for_roll=waiting.get(counts.partition, 0),
            roll_due_ns=due_ns.get(counts.partition),
        )


def _roll_due_ns(found: TopicSegments, topic: TopicPolicy) -> dict[int, int]:
    """Partition → when age seals its active segment, where there is a message in it."""
    if topic.roll_after_us is None:
        return {}
    active = ~found.sealed & (found.first_us != 0)
    due_us = found.first_us[active] + topic.roll_after_us
    return dict(zip(found.partition[active].tolist(), (due_us * MICROSECOND).tolist(), strict=True))


def _messages_waiting(seen: TopicPlanning, topic: TopicPolicy) -> dict[int, int]:
    """Partition → messages of its active segment that would go, were it sealed."""
    sealed = with_sealed(seen.found, np.ones(len(seen.found), dtype=bool))
    now_us = seen.plan.as_of_ns // MICROSECOND
    offsets = seen.offsets
    would = topic_pass(sealed, topic, now_us, offsets.barriers, offsets.watermarks)
    is_stored = sealed.end >= sealed.start
    active = ~seen.found.sealed[seen.found.end >= seen.found.start]
    chosen = pa.array(
        (active & (would.fates[is_stored] != STAYS))[segment_numbers(seen.inventory.files)[0]]
    )
    summed = (
        seen.inventory.files.filter(chosen).group_by("partition").aggregate([("messages", "sum")])
    )
    return dict(
        zip(summed["partition"].to_pylist(), summed["messages_sum"].to_pylist(), strict=True)
    )


def _readers(seen: TopicPlanning, partition: int) -> Iterator[dict[str, Any]]:
    inventory = seen.inventory
    for reader, stored in sorted(seen.offsets.of.items()):
        if reader.partition == partition:
            told = info_of(inventory.stream, inventory.counters, reader, stored).as_json()
            yield {name: told[name] for name in _OF_READER}
