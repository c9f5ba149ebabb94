"""Refusals of a consumer on its stream: those of the server, and those that we add."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from retention.config.checks.consumer_delivery import (
    mode_refusals,
    priority_refusals,
    start_refusals,
)
from retention.config.checks.consumer_filters import filter_refusals, unmatched_filter_refusals
from retention.config.checks.consumer_updates import CREATE_FAILED, update_refusals
from retention.config.checks.workqueue import overlap_refusals, work_queue_refusals
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.config.types import (
    MAX_DESCRIPTION_BYTES,
    MAX_METADATA_BYTES,
    Refusal,
    refusal,
)
from retention.core.subjects import MAX_NAME_LENGTH, is_valid_name
from retention.core.units import format_duration

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields

_PATH_SEPARATORS = {"/", "\\"}
_REQUIRED_LEVEL = "_nats.req.level"
_REPORTED = {"_nats.ver", "_nats.level"}
"""Metadata that a server adds to its replies, never to the configuration that it keeps."""


def consumer_refusals(
    consumer: ConsumerConfig,
    stream: StreamFields,
    others: Collection[ConsumerConfig] = (),
    existing: ConsumerConfig | None = None,
) -> Iterator[Refusal]:
    """The refusals of a consumer that is created, or updated, on a stream.

    The refusals come in the order in which a server looks: the code of the first that has one is
    its answer to CONSUMER.CREATE (server: jsConsumerCreateRequest, checkConsumerCfg, addConsumer).

    Args:
        consumer: the requested configuration; it need not be resolved.
        stream: the stream, which has limits and defaults for its consumers.
        others: the stream's other consumers.
        existing: the consumer of that name, if there is one; then this is an update.
    """
    requested = with_server_defaults(consumer, stream)
    yield from _names(requested)
    yield from _replicas(requested, stream)
    yield from _waits(requested)
    yield from mode_refusals(requested, stream)
    yield from _limits(requested, stream)
    yield from filter_refusals(requested)
    yield from start_refusals(requested)
    yield from _details(requested)
    if existing is None:
        yield from _room(requested, stream, others)
        yield from work_queue_refusals(requested, stream, others)
    else:
        yield from overlap_refusals(requested, stream, others)
        yield from update_refusals(requested, with_server_defaults(existing, stream))
    yield from unmatched_filter_refusals(requested, stream)


def listed_consumers_refusals(
    stream: StreamFields, consumers: Sequence[ConsumerConfig]
) -> Iterator[Refusal]:
    """The refusals of the consumers listed for a stream, each created after those before it."""
    for at, consumer in enumerate(consumers):
        earlier = consumers[:at]
        if consumer.name and any(other.name == consumer.name for other in earlier):
            text = "another consumer of the stream has this name; rename or remove one"
            yield replace(refusal("durable_name name", text, 10148), within=("consumers", at))
            continue
        for reason in consumer_refusals(consumer, stream, earlier):
            yield replace(reason, within=("consumers", at))


def _names(consumer: ConsumerConfig) -> Iterator[Refusal]:
    if not consumer.name:
        yield refusal("durable_name name", "is missing; every consumer has one here", None)
    elif _PATH_SEPARATORS & set(consumer.name):
        text = (
            f"{consumer.name!r}: a consumer's name cannot hold path separators; leave out / and \\"
        )
        yield refusal("durable_name name", text, 10127)
    elif consumer.is_durable and consumer.durable_name != consumer.name:
        text = (
            f"durable_name {consumer.durable_name!r} and name {consumer.name!r} differ; leave one"
            " of them out"
        )
        yield refusal("durable_name name", text, 10017)
    elif len(consumer.name.encode()) > MAX_NAME_LENGTH:
        text = f"is longer than {MAX_NAME_LENGTH} bytes; shorten it"
        yield refusal("durable_name name", text, 10102 if consumer.is_durable else CREATE_FAILED)
    elif not is_valid_name(consumer.name):
        text = f"{consumer.name!r} is no name: leave out whitespace and all of . * >"
        yield refusal("durable_name name", text)


def _replicas(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[Refusal]:
    count, whole = consumer.num_replicas, stream.num_replicas
    if count > whole:
        yield refusal(
            "num_replicas", f"{count} is more than the stream has; write at most {whole}", 10126
        )
    elif count < 0:
        yield refusal("num_replicas", "must not be negative; leave it out", 10133)
    elif stream.retention != "limits" and count not in {0, whole}:
        text = f"must be those of a stream with retention: {stream.retention}; write {whole}"
        yield refusal("num_replicas retention", text, 10134)


def _waits(consumer: ConsumerConfig) -> Iterator[Refusal]:
    if any(wait < 0 for wait in consumer.backoff):
        yield refusal("backoff", "no wait can be negative; write 0s or more", 10184)
    elif consumer.ack_wait < 0:
        yield refusal("ack_wait", "must not be negative; write 30s, or leave it out", 10183)
    if consumer.ack_policy == "flow_control":
        yield from _acks_by_flow_control(consumer)
    steps = len(consumer.backoff)
    if 0 < consumer.max_deliver < steps:
        text = f"{consumer.max_deliver} is less than the {steps} waits of backoff; write {steps}"
        yield refusal("max_deliver backoff", text, 10116)
    if len(consumer.description.encode()) > MAX_DESCRIPTION_BYTES:
        text = f"is longer than {MAX_DESCRIPTION_BYTES} bytes; shorten it"
        yield refusal("description", text, 10107)


def _acks_by_flow_control(consumer: ConsumerConfig) -> Iterator[Refusal]:
    policy = "ack_policy: flow_control"
    if not consumer.is_push:
        yield refusal(
            "ack_policy", "flow_control works only with a deliver_subject; add one", 10218
        )
    if consumer.max_ack_pending <= 0:
        yield refusal("max_ack_pending", f"{policy} needs a limit; write 1000", 10220)
    if consumer.ack_wait or consumer.backoff:
        yield refusal("ack_wait backoff", f"{policy} knows no waits; leave it out", 10221)
    if consumer.max_deliver > 0:
        yield refusal("max_deliver", f"{policy} knows no redelivery; leave it out", 10222)


def _limits(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[Refusal]:
    limits = stream.consumer_limits
    if 0 < limits.max_ack_pending < consumer.max_ack_pending:
        text = f"the stream's consumer_limits allow {limits.max_ack_pending} at most; write that"
        yield refusal("max_ack_pending consumer_limits", text, 10121)
    if 0 < limits.inactive_threshold < consumer.inactive_threshold:
        most = format_duration(limits.inactive_threshold)
        text = f"the stream's consumer_limits allow {most} at most; write that"
        yield refusal("inactive_threshold consumer_limits", text, 10153)
    if consumer.direct and not consumer.is_push:
        yield refusal("direct", "works only with a deliver_subject; leave it out", 10090)
    elif consumer.direct and consumer.is_durable:
        yield refusal("direct", "works only without a durable_name; leave it out", 10091)


def _details(consumer: ConsumerConfig) -> Iterator[Refusal]:
    if consumer.flow_control and not consumer.idle_heartbeat:
        text = "works only with heartbeats; add idle_heartbeat: 5s"
        yield refusal("flow_control idle_heartbeat", text, 10108)
    kept = {key: value for key, value in consumer.metadata.items() if key not in _REPORTED}
    kept[_REQUIRED_LEVEL] = "0"
    if sum(len(f"{key}{value}".encode()) for key, value in kept.items()) > MAX_METADATA_BYTES:
        yield refusal("metadata", f"is longer than {MAX_METADATA_BYTES} bytes; shorten it", 10135)
    yield from priority_refusals(consumer)


def _room(
    consumer: ConsumerConfig, stream: StreamFields, others: Collection[ConsumerConfig]
) -> Iterator[Refusal]:
    count = sum(not other.is_internal for other in others)
    if 0 < stream.max_consumers <= count and not consumer.is_internal:
        text = f"max_consumers: {stream.max_consumers} is reached; raise it, or remove a consumer"
        yield refusal("durable_name name max_consumers", text, 10026)
