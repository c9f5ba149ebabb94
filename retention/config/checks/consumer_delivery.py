"""The server's refusals of a consumer's delivery: push or pull, its start, its priority groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from retention.config.consumer import ConsumerConfig
from retention.config.types import Refusal, refusal
from retention.core.subjects import is_literal, is_subset, is_valid_filter
from retention.core.units import INT64_MAX, MILLISECOND

if TYPE_CHECKING:
    from retention.config.stream_fields import StreamFields

SHORTEST_HEARTBEAT_NS = 100 * MILLISECOND
SHORTEST_REQUEST_NS = MILLISECOND
_GROUP = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_SAMPLE = re.compile(r"\+?([0-9]+)%?|-0+%?", re.ASCII)


def mode_refusals(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[Refusal]:
    """The refusals of a resolved consumer's settings that do not go with push, or with pull."""
    yield from _push(consumer, stream) if consumer.is_push else _pull(consumer, stream)


def _push(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[Refusal]:
    yield from _deliver_subject(consumer.deliver_subject, stream)
    if consumer.max_waiting:
        text = "is about requests, and messages are pushed to deliver_subject; leave it out"
        yield refusal("max_waiting deliver_subject", text, 10080)
    if consumer.max_ack_pending > 0 and consumer.ack_policy == "none":
        text = "nothing is pending where nothing is acknowledged; leave it out, or write ack_policy: explicit"
        yield refusal("max_ack_pending ack_policy consumer_limits", text, 10082)
    if 0 < consumer.idle_heartbeat < SHORTEST_HEARTBEAT_NS:
        yield refusal("idle_heartbeat", "is too short; write at least 100ms", 10083)
    if consumer.deliver_group and (consumer.flow_control or consumer.idle_heartbeat):
        text = (
            "its members share what is sent, so that heartbeats and flow control reach only one of"
            " them; leave out deliver_group, or flow_control and idle_heartbeat"
        )
        yield refusal("deliver_group idle_heartbeat flow_control", text, None)


def _deliver_subject(subject: str, stream: StreamFields) -> Iterator[Refusal]:
    if not is_literal(subject):
        yield refusal("deliver_subject", f"{subject!r} has wildcards; write one subject", 10079)
    elif not is_valid_filter(subject):
        text = f"{subject!r} is no subject: tokens must not be empty or hold whitespace"
        yield refusal("deliver_subject", text, 10112)
    elif any(is_subset(subject, taken) for taken in stream.subjects):
        text = f"{subject!r} is among the stream's own subjects; write one that it does not take"
        yield refusal("deliver_subject subjects", text, 10081)


def _pull(consumer: ConsumerConfig, stream: StreamFields) -> Iterator[Refusal]:
    if consumer.ack_policy == "none" and stream.retention == "workqueue":
        text = "a work queue lets go what is acknowledged; write explicit"
        yield refusal("ack_policy retention", text, 10084)
    if consumer.rate_limit_bps:
        yield refusal("rate_limit_bps", f"{_ONLY_PUSHED}; leave it out", 10086)
    if consumer.ack_policy != "flow_control":
        if consumer.idle_heartbeat:
            yield refusal("idle_heartbeat", f"{_ONLY_PUSHED}; leave it out", 10088)
        if consumer.flow_control:
            yield refusal("flow_control", f"{_ONLY_PUSHED}; leave it out", 10089)
    if 0 < consumer.max_expires < SHORTEST_REQUEST_NS:
        yield refusal("max_expires", "is too short; write at least 1ms, or leave it out", 10115)


_ONLY_PUSHED = "works only with a deliver_subject, to which messages are pushed"


def start_refusals(consumer: ConsumerConfig) -> Iterator[Refusal]:
    """The refusals of a consumer's start that does not go with its deliver policy, and of its sample frequency."""
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
        text = f"{consumer.sample_freq!r} is no share: write a percentage, such as 50%"
        yield refusal("sample_freq", text, 10095)


def _is_sample(text: str) -> bool:
    match = _SAMPLE.fullmatch(text)
    return not text or (match is not None and int(match[1] or 0) <= INT64_MAX)


def priority_refusals(consumer: ConsumerConfig) -> Iterator[Refusal]:
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
            text = f"{group!r} is no group: write 1 to 16 letters, digits or any of - _ / ="
            yield refusal("priority_groups", text, 10162)


def _unused_priorities(consumer: ConsumerConfig) -> Iterator[Refusal]:
    needs = "works only with a priority_policy; add priority_policy: overflow, or leave it out"
    if consumer.priority_groups:
        yield refusal("priority_groups priority_policy", needs, 10196)
    if consumer.priority_timeout:
        needs = needs.replace("overflow", "pinned_client")
        yield refusal("priority_timeout priority_policy", needs, 10197)
