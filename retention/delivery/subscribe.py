"""From a subscription to a consumer that messages can be asked of: found, checked, or created (ADR-15)."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from retention.config.consumer import ConsumerConfig
from retention.consumers.subscription import Subscription, stream_of, subscription_refusals
from retention.context.context import OpenedStream
from retention.context.topic import refuse_consumers_of_topic
from retention.delivery.consumer import BatchConsumer
from retention.errors import RefusedError
from retention.interest.edit import put_consumers
from retention.stores.consumer_table import ConsumerTable


def subscribe(wanted: Subscription, streams: Collection[OpenedStream]) -> BatchConsumer:
    """Find the stream and the consumer that a subscription asks for; a consumer that is not there is created.

    One without a name is nobody else's: its name is made up, and it goes when its `with` block ends.

    Args:
        wanted: the subscription; a queue's name is that of its consumer, if it has no other.
        streams: all that there are.

    Raises:
        UsageError: no stream takes the subject, or several do.
        RefusedError: a client must not ask that, a server would refuse the consumer, or its messages are pushed.
    """
    config = stream_of(wanted, [one.config for one in streams])
    refuse_consumers_of_topic(config)
    [opened] = [one for one in streams if one.name == config.name]
    asked = wanted.config or ConsumerConfig()
    name = wanted.consumer or asked.name or wanted.queue
    existing = _existing(opened, name)
    told = [f"{one.keys[0]}: {one.text}" for one in subscription_refusals(wanted, config, existing)]
    if not wanted.pull:
        told.append("pull: nothing is pushed from here; ask for the messages, with pull")
    if told:
        raise RefusedError(f"{opened.name}: {'; '.join(told)}; nothing was changed")
    if existing is not None:
        return BatchConsumer(opened, name)
    created = _created(wanted, asked, name)
    put_consumers(opened, [created])
    return BatchConsumer(opened, created.name)


def _existing(opened: OpenedStream, name: str) -> ConsumerConfig | None:
    """The consumer of that name: as it is, or as the configuration lists it."""
    known = {one.name: one for one in opened.config.consumers}
    if opened.store.exists():
        records = ConsumerTable(opened.root).live(opened.store.snapshot().counters)
        known |= {record.consumer: ConsumerConfig(**record.config) for record in records}
    return known.get(name)


def _created(wanted: Subscription, asked: ConsumerConfig, name: str) -> ConsumerConfig:
    """The consumer that is created: what is asked, explicit acks, and the subject as its filter."""
    own = {"durable_name": name, "name": name} if name else {"name": uuid.uuid4().hex[:8]}
    if wanted.subject and not asked.filters:
        own["filter_subject"] = wanted.subject
    return asked.model_copy(update={**own, "ack_policy": "explicit"})
