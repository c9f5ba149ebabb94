"""Refusals of topics, and of streams that are not topics, before anything is opened."""

from __future__ import annotations

from retention.config.discovery import CONFIG_NAME
from retention.config.stream import StreamConfig
from retention.config.topic import TopicConfig
from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.errors import UsageError
from retention.history.runs import history_of
from retention.ports import Snapshot


def topic_of(opened: OpenedStream) -> TopicConfig:
    """The configuration of a topic.

    Raises:
        UsageError: the configuration lists no topic of that name.
    """
    topic = opened.config.topic
    if topic is None:
        raise UsageError(
            f"{opened.name}: is not a topic; list it under `topics:` in {CONFIG_NAME}, with its partitions"
        )
    return topic


def refuse_partition(opened: OpenedStream, partition: int) -> None:
    """Refuse a partition that a topic does not have.

    Raises:
        UsageError: the topic has no partition of that number, or it is not a topic.
    """
    partitions = topic_of(opened).partitions
    if not 0 <= partition < partitions:
        raise UsageError(
            f"{opened.name}: there is no partition {partition}; name one from 0 to {partitions - 1}"
        )


def refuse_topic(config: StreamConfig, why: str, instead: str) -> None:
    """Refuse an operation that topics do not support.

    Args:
        config: the configuration of the named stream or topic.
        why: the reason, a subordinate clause.
        instead: the remedy.

    Raises:
        UsageError: it is a topic.
    """
    if config.topic is not None:
        raise UsageError(f"{config.name}: is a topic, {why}; nothing was changed; {instead}")


def refuse_consumers_of_topic(config: StreamConfig) -> None:
    """Refuse consumers of a topic: its readers store offsets instead.

    Raises:
        UsageError: it is a topic.
    """
    refuse_topic(
        config,
        "which has readers with stored offsets, not consumers",
        f"{command('offset ls', config.name)} lists them",
    )


def has_data(opened: OpenedStream, snapshot: Snapshot) -> bool:
    """Whether a message was ever stored in a topic in its current epoch, by its files and counters."""
    known = history_of(opened.warehouse, opened.name).above(snapshot.counters).next_seq
    counted = (known.get(partition, 0) for partition in range(opened.config.partitions))
    return bool(snapshot.files.num_rows) or any(counted)
