"""Refusals of a consumer on its stream: the server's, and our own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from retention.config.checks.consumer_filters import filter_refusals, unmatched_filter_refusals
from retention.config.checks.consumer_updates import CREATE_FAILED, update_refusals
from retention.config.checks.workqueue import overlap_refusals, work_queue_refusals
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.config.types import MAX_DESCRIPTION_BYTES, MAX_METADATA_BYTES, ConfigRefusal, refusal
from retention.core.subjects import (
    MAX_NAME_LENGTH,
    is_literal,
    is_subset,
    is_valid_filter,
    is_valid_name,
)
from retention.core.units import INT64_MAX, MILLISECOND, format_duration

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields

_SHORTEST_HEARTBEAT_NS = 100 * MILLISECOND
_SHORTEST_REQUEST_NS = MILLISECOND
_GROUP = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_SAMPLE = re.compile(r"\+?([0-9]+)%?|-0+%?", re.ASCII)
_ONLY_PUSHED = "works only with a deliver_subject, to which messages are pushed"
_PATH_SEPARATORS = {"/", "\\"}
_REQUIRED_LEVEL = "_nats.req.level"
_REPORTED = {"_nats.ver", "_nats.level"}
"""Metadata that a server adds to its replies, but never to the configuration that it stores."""


def consumer_refusals(
    consumer: ConsumerConfig,
    stream: StreamFields,
    others: Collection[ConsumerConfig] = (),
    existing: ConsumerConfig | None = None,
) -> Iterator[ConfigRefusal]:
    """The refusals of a consumer to be created, or updated, on a stream.

    The refusals come in the order of a server's checks: the first code among them is its answer to CONSUMER.CREATE
    (server: jsConsumerCreateRequest, checkConsumerCfg, addConsumer).

    Args:
        consumer: the requested configuration; it need not be resolved.
        stream: the stream, with limits and defaults for its consumers.
        others: the stream's other consumers.
        existing: the consumer of that name, if there is one; then this is an update.
    """
    requested = with_server_defaults(consumer, stream)
    yield from _names(requested)
    yield from _replicas(requested, stream)
    yield from _waits(requested)
    yield from _mode_refusals(requested, stream)
    yield from _limits(requested, stream)
    yield from filter_refusals(requested)
    yield from _start_refusals(requested)
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
) -> Iterator[ConfigRefusal]:
    """The refusals of the consumers listed for a stream, each created after those before it."""
    for at, consumer in enumerate(consumers):
        earlier = consumers[:at]
        if consumer.name and any(other.name == consumer.name for other in earlier):
            text = "another consumer of the stream has this name; rename or remove one"
            yield replace(refusal("durable_name name", text, 10148), within=("consumers", at))
            continue
        for reason in consumer_refusals(consumer, stream, earlier):
            yield replace(reason, within=("consumers", at))


def _names(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
    if not consumer.name:
        yield refusal("durable_name name", "is missing; every consumer has one here", None)
    elif _PATH_SEPARATORS & set(consumer.name):
        text = (
            f"{consumer.name!r}: a consumer's name cannot have path separators; leave out / and \\"
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
        text = f"{consumer.name!r} is not a name: leave out whitespace and all of . * >"
        yield refusal("durable_name name", text)


def _replicas(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[ConfigRefusal]:
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


def _waits(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
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


def _acks_by_flow_control(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
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


def _limits(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[ConfigRefusal]:
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


def _details(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
    if consumer.flow_control and not consumer.idle_heartbeat:
        text = "works only with heartbeats; add idle_heartbeat: 5s"
        yield refusal("flow_control idle_heartbeat", text, 10108)
    kept = {key: value for key, value in consumer.metadata.items() if key not in _REPORTED}
    kept[_REQUIRED_LEVEL] = "0"
    if sum(len(f"{key}{value}".encode()) for key, value in kept.items()) > MAX_METADATA_BYTES:
        yield refusal("metadata", f"is longer than {MAX_METADATA_BYTES} bytes; shorten it", 10135)
    yield from _priority_refusals(consumer)


def _room(
    consumer: ConsumerConfig, stream: StreamFields, others: Collection[ConsumerConfig]
) -> Iterator[ConfigRefusal]:
    count = sum(not other.is_internal for other in others)
    if 0 < stream.max_consumers <= count and not consumer.is_internal:
        text = f"max_consumers: {stream.max_consumers} is reached; raise it, or remove a consumer"
        yield refusal("durable_name name max_consumers", text, 10026)


def _mode_refusals(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[ConfigRefusal]:
    """The refusals of a resolved consumer's settings that conflict with push, or with pull."""
    yield from _push(consumer, stream) if consumer.is_push else _pull(consumer, stream)


def _push(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[ConfigRefusal]:
    yield from _deliver_subject(consumer.deliver_subject, stream)
    if consumer.max_waiting:
        text = "is about requests, and messages are pushed to deliver_subject; leave it out"
        yield refusal("max_waiting deliver_subject", text, 10080)
    if consumer.max_ack_pending > 0 and consumer.ack_policy == "none":
        text = "nothing is pending where nothing is acknowledged; leave it out, or write ack_policy: explicit"
        yield refusal("max_ack_pending ack_policy consumer_limits", text, 10082)
    if 0 < consumer.idle_heartbeat < _SHORTEST_HEARTBEAT_NS:
        yield refusal("idle_heartbeat", "is too short; write at least 100ms", 10083)
    if consumer.deliver_group and (consumer.flow_control or consumer.idle_heartbeat):
        text = (
            "its members share the sent messages, so that heartbeats and flow control reach only one of"
            " them; leave out deliver_group, or flow_control and idle_heartbeat"
        )
        yield refusal("deliver_group idle_heartbeat flow_control", text, None)


def _deliver_subject(subject: str, stream: StreamFields) -> Iterator[ConfigRefusal]:
    if not is_literal(subject):
        yield refusal("deliver_subject", f"{subject!r} has wildcards; write one subject", 10079)
    elif not is_valid_filter(subject):
        text = f"{subject!r} is not a subject: tokens must not be empty or have whitespace"
        yield refusal("deliver_subject", text, 10112)
    elif any(is_subset(subject, taken) for taken in stream.subjects):
        text = f"{subject!r} is among the stream's own subjects; write another one"
        yield refusal("deliver_subject subjects", text, 10081)


def _pull(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[ConfigRefusal]:
    if consumer.ack_policy == "none" and stream.retention == "workqueue":
        text = "a work queue removes acknowledged messages; write explicit"
        yield refusal("ack_policy retention", text, 10084)
    if consumer.rate_limit_bps:
        yield refusal("rate_limit_bps", f"{_ONLY_PUSHED}; leave it out", 10086)
    if consumer.ack_policy != "flow_control":
        if consumer.idle_heartbeat:
            yield refusal("idle_heartbeat", f"{_ONLY_PUSHED}; leave it out", 10088)
        if consumer.flow_control:
            yield refusal("flow_control", f"{_ONLY_PUSHED}; leave it out", 10089)
    if 0 < consumer.max_expires < _SHORTEST_REQUEST_NS:
        yield refusal("max_expires", "is too short; write at least 1ms, or leave it out", 10115)


def _start_refusals(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
    """The refusals of a consumer's start that conflicts with its deliver policy, and of its sample frequency."""
    policy = consumer.deliver_policy
    given = {
        "opt_start_seq": consumer.opt_start_seq > 0,
        "opt_start_time": consumer.opt_start_time is not None,
    }
    wanted = {"by_start_sequence": "opt_start_seq", "by_start_time": "opt_start_time"}.get(policy)
    if wanted and not given[wanted]:
        text = f"{policy} works only with {wanted}; add it"
        yield refusal(f"deliver_policy {wanted}", text, 10094)
    for key in (key for key, is_given in given.items() if is_given and key != wanted):
        choice = next(name for name in ("by_start_sequence", "by_start_time") if key[10:] in name)
        text = f"does not go with deliver_policy: {policy}; leave it out, or write {choice}"
        yield refusal(f"{key} deliver_policy", text, 10094)
    if policy == "last_per_subject" and not consumer.filters:
        text = "last_per_subject works only with a filter; add filter_subject: '>'"
        yield refusal("deliver_policy filter_subject filter_subjects", text, 10094)
    if not _is_sample(consumer.sample_freq):
        text = f"{consumer.sample_freq!r} is not a share: write a percentage, such as 50%"
        yield refusal("sample_freq", text, 10095)


def _is_sample(text: str) -> bool:
    match = _SAMPLE.fullmatch(text)
    return not text or (match is not None and int(match[1] or 0) <= INT64_MAX)


def _priority_refusals(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
    """The refusals of the priority groups by which a consumer's pull requests are ranked."""
    policy, groups = consumer.priority_policy, consumer.priority_groups
    if policy == "none":
        yield from _unused_priorities(consumer)
        return
    if consumer.is_push:
        text = "ranks requests, and messages are pushed to deliver_subject; leave one of them out"
        yield refusal("priority_policy deliver_subject", text, 10178)
    if not groups:
        text = f"{policy} works only with a group; add priority_groups: [main]"
        yield refusal("priority_policy priority_groups", text, 10159)
    for group in groups:
        if not group:
            yield refusal("priority_groups", "a group's name cannot be empty", 10161)
        elif not _GROUP.fullmatch(group):
            text = f"{group!r} is not a group: write 1 to 16 letters, digits or any of - _ / ="
            yield refusal("priority_groups", text, 10162)


def _unused_priorities(consumer: ConsumerConfig) -> Iterator[ConfigRefusal]:
    needs = "works only with a priority_policy; add priority_policy: overflow, or leave it out"
    if consumer.priority_groups:
        yield refusal("priority_groups priority_policy", needs, 10196)
    if consumer.priority_timeout:
        needs = needs.replace("overflow", "pinned_client")
        yield refusal("priority_timeout priority_policy", needs, 10197)
