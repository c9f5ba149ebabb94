"""Subscriptions as consumers that support fetching: found, checked, or created (ADR-15)."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from retention.config.consumer import ConsumerConfig
from retention.consumers.subscription import Subscription, find_stream, subscription_refusals
from retention.context.context import OpenedStream
from retention.context.topic import refuse_consumers_of_topic
from retention.delivery.consumer import BatchConsumer
from retention.errors import RefusedError
from retention.interest.edit import put_consumers
from retention.stores.consumer_table import ConsumerTable


def subscribe(wanted: Subscription, streams: Collection[OpenedStream]) -> BatchConsumer:
    """Find the stream and the consumer of a subscription; a missing consumer is created.

    A consumer without a name is private to this client: its name is generated, and it is deleted when its `with` block
    ends.

    Args:
        wanted: the subscription; a queue's name is that of its consumer, if it has no other.
        streams: all streams of the warehouse.

    Raises:
        UsageError: no stream accepts the subject, or several do.
        RefusedError: a client must not request that, a server would refuse the consumer, or it is a push consumer.
    """
    config = find_stream(wanted, [stream.config for stream in streams])
    refuse_consumers_of_topic(config)
    [opened] = [stream for stream in streams if stream.name == config.name]
    requested = wanted.config or ConsumerConfig()
    name = wanted.consumer or requested.name or wanted.queue
    existing = _existing(opened, name)
    sentences = [
        f"{refusal.keys[0]}: {refusal.text}"
        for refusal in subscription_refusals(wanted, config, existing)
    ]
    if not wanted.pull:
        sentences.append("pull: this client pushes nothing; request the messages, with pull")
    if sentences:
        raise RefusedError(f"{opened.name}: {'; '.join(sentences)}; nothing was changed")
    if existing is not None:
        return BatchConsumer(opened, name)
    created = _created(wanted, requested, name)
    put_consumers(opened, [created])
    return BatchConsumer(opened, created.name)


def _existing(opened: OpenedStream, name: str) -> ConsumerConfig | None:
    """The configuration of the consumer of that name: as stored, otherwise as the stream's configuration lists it."""
    known = {consumer.name: consumer for consumer in opened.config.consumers}
    if opened.table.exists():
        records = ConsumerTable(opened.root).live(opened.store.snapshot().counters)
        known |= {record.consumer: ConsumerConfig(**record.config) for record in records}
    return known.get(name)


def _created(wanted: Subscription, requested: ConsumerConfig, name: str) -> ConsumerConfig:
    """The configuration of a new consumer: as requested, with explicit acks and the subject as its filter."""
    fields = {"durable_name": name, "name": name} if name else {"name": uuid.uuid4().hex[:8]}
    if wanted.subject and not requested.filters:
        fields["filter_subject"] = wanted.subject
    return requested.model_copy(update={**fields, "ack_policy": "explicit"})
