"""The consumers that a configuration lists for a stream, created or updated alongside the stream's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from retention.config.checks.consumer import consumer_refusals
from retention.config.checks.consumer_updates import updated_consumer
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.errors import RefusedError

if TYPE_CHECKING:
    from retention.config.stream import StreamConfig


def listed_consumers(
    stream: StreamConfig, stored: Mapping[str, ConsumerConfig]
) -> dict[str, ConsumerConfig]:
    """Resolve the configuration of each listed consumer, created or updated; by name, in the order of the list.

    Args:
        stream: the stream whose `consumers` are the list.
        stored: the consumers that the stream has, by name; unlisted ones are unchanged.

    Raises:
        RefusedError: a listed consumer cannot be created beside the existing ones, or cannot be updated as listed.
    """
    known, listed, sentences = dict(stored), {}, []
    for consumer in stream.consumers:
        existing = known.pop(consumer.name, None)
        faults = consumer_refusals(consumer, stream, known.values(), existing)
        sentences += [
            f"consumer {consumer.name}: {fault.keys[0]}: {fault.text}" for fault in faults
        ]
        new = (
            updated_consumer(existing, consumer, stream)
            if existing
            else with_server_defaults(consumer, stream)
        )
        known[consumer.name] = listed[consumer.name] = new
    if sentences:
        raise RefusedError(f"{stream.name}: {'; '.join(sentences)}; no consumer was changed")
    return listed
