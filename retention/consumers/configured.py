"""The consumers that a configuration lists for a stream, beside those that the stream has: what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from retention.config.checks.consumer import refusals
from retention.config.checks.consumer_updates import updated
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import resolved
from retention.errors import RefusedError

if TYPE_CHECKING:
    from retention.config.stream import StreamConfig


def listed_consumers(
    stream: StreamConfig, stored: Mapping[str, ConsumerConfig]
) -> dict[str, ConsumerConfig]:
    """What each listed consumer is once it is created or updated, by name, in the order of the list.

    Args:
        stream: its `consumers` are the list.
        stored: the consumers that the stream has, by name; those that are not listed stay.

    Raises:
        RefusedError: beside those that are there, one cannot be created, or cannot become what is listed.
    """
    known, listed, told = dict(stored), {}, []
    for consumer in stream.consumers:
        existing = known.pop(consumer.name, None)
        found = refusals(consumer, stream, known.values(), existing)
        told += [f"consumer {consumer.name}: {one.keys[0]}: {one.text}" for one in found]
        new = updated(existing, consumer, stream) if existing else resolved(consumer, stream)
        known[consumer.name] = listed[consumer.name] = new
    if told:
        raise RefusedError(f"{stream.name}: {'; '.join(told)}; no consumer was changed")
    return listed
