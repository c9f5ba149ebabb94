"""The server's defaults for fields omitted from a consumer's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields
from retention.config.consumer import (
    _NEVER_NEGATIVE,
    DEFAULT_ACK_WAIT_NS,
    DEFAULT_INACTIVE_THRESHOLD_NS,
    DEFAULT_MAX_ACK_PENDING,
    DEFAULT_MAX_WAITING,
    DEFAULT_PRIORITY_TIMEOUT_NS,
    FLOW_CONTROL_HEARTBEAT_NS,
    UNLIMITED,
    ConsumerConfig,
)


def with_server_defaults(consumer: ConsumerConfig, stream: StreamFields) -> ConsumerConfig:
    """The consumer with the server's values for omitted fields (server: setConsumerConfigDefaults).

    Resolving again changes nothing.
    """
    changes = _floors(consumer)
    for default in (_waits, _pending, _inactivity, _priorities, _flow):
        changes |= default(consumer.model_copy(update=changes), stream)
    return consumer.model_copy(update=changes)


def _floors(consumer: ConsumerConfig) -> dict[str, object]:
    """The values that replace numbers out of range, such as a negative count."""
    floors = {key: max(getattr(consumer, key), 0) for key in _NEVER_NEGATIVE}
    return floors | {
        "max_deliver": consumer.max_deliver if consumer.max_deliver > 0 else UNLIMITED,
        "max_ack_pending": max(consumer.max_ack_pending, UNLIMITED),
    }


def _waits(consumer: ConsumerConfig, _: StreamFields) -> dict[str, object]:
    waiting = 0 if consumer.is_push else DEFAULT_MAX_WAITING
    waits_for_acks = consumer.ack_policy in {"explicit", "all"}
    ack_wait = consumer.ack_wait or (DEFAULT_ACK_WAIT_NS if waits_for_acks else 0)
    return {
        "max_waiting": consumer.max_waiting or waiting,
        "ack_wait": consumer.backoff[0] if consumer.backoff else ack_wait,
    }


def _pending(consumer: ConsumerConfig, stream: StreamFields) -> dict[str, object]:
    limit = consumer.max_ack_pending or stream.consumer_limits.max_ack_pending
    default = 0 if consumer.ack_policy == "none" else DEFAULT_MAX_ACK_PENDING
    return {"max_ack_pending": limit or default}


def _inactivity(consumer: ConsumerConfig, stream: StreamFields) -> dict[str, object]:
    threshold = consumer.inactive_threshold or stream.consumer_limits.inactive_threshold
    stays = consumer.is_durable or threshold > 0
    return {"inactive_threshold": threshold if stays else DEFAULT_INACTIVE_THRESHOLD_NS}


def _priorities(consumer: ConsumerConfig, _: StreamFields) -> dict[str, object]:
    default = DEFAULT_PRIORITY_TIMEOUT_NS if consumer.priority_policy == "pinned_client" else 0
    return {"priority_timeout": consumer.priority_timeout or default}


def _flow(consumer: ConsumerConfig, _: StreamFields) -> dict[str, object]:
    if consumer.ack_policy != "flow_control":
        return {}
    return {"flow_control": True, "idle_heartbeat": FLOW_CONTROL_HEARTBEAT_NS}
