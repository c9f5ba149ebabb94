"""Updates of a consumer: the fields that they may change, and the configuration that results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.config.types import ConfigRefusal, refusal
from retention.core.units import format_duration

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields

CREATE_FAILED = 10012
FIXED = (
    "deliver_policy",
    "mem_storage",
    "direct",
    "sourcing",
    "opt_start_seq",
    "opt_start_time",
    "ack_policy",
    "replay_policy",
    "idle_heartbeat",
    "flow_control",
    "max_waiting",
)
"""Fields that a consumer cannot change after its creation (server: checkNewConsumerConfig)."""


def updated_consumer(
    existing: ConsumerConfig, consumer: ConsumerConfig, stream: StreamFields
) -> ConsumerConfig:
    """The consumer after an update that is not refused: as requested, but paused as before.

    An omitted inactivity threshold depends on whether the consumer was durable, as on the server.
    """
    as_durable = consumer.model_copy(update={"durable_name": existing.durable_name})
    kept = {"durable_name": consumer.durable_name, "pause_until": existing.pause_until}
    return with_server_defaults(as_durable, stream).model_copy(update=kept)


def update_refusals(requested: ConsumerConfig, existing: ConsumerConfig) -> Iterator[ConfigRefusal]:
    """The refusals of an update of one resolved configuration to another that changes a fixed field."""
    if requested.is_push != existing.is_push:
        kind, other = ("push", "pull") if existing.is_push else ("pull", "push")
        text = f"a {kind} consumer cannot become a {other} consumer; name another consumer"
        yield refusal("deliver_subject", text, CREATE_FAILED)
        return
    for key in FIXED:
        if getattr(requested, key) != getattr(existing, key):
            text = f"cannot be updated; leave it at {_written(existing, key)}, or name another consumer"
            yield refusal(key, text, CREATE_FAILED)


def _written(consumer: ConsumerConfig, key: str) -> str:
    value = consumer.model_dump(mode="json")[key]
    return format_duration(value) if key == "idle_heartbeat" else json.dumps(value).strip('"')
