"""Subscriptions to a consumer: the stream they are for, and requests that a client must not make (ADR-15)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.config.types import ConfigRefusal, refusal
from retention.core.subjects import is_valid_filter, overlap
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.config.stream import StreamConfig


@dataclass(frozen=True)
class Subscription:
    """A client's request to subscribe; empty text: not specified."""

    subject: str = ""
    stream: str = ""
    consumer: str = ""
    """The name of an existing consumer."""
    queue: str = ""
    """The group whose members share pushed messages."""
    pull: bool = False
    config: ConsumerConfig | None = None


def find_stream(wanted: Subscription, streams: Collection[StreamConfig]) -> StreamConfig:
    """Find the stream of a subscription: by its name, or by the subject alone (server: STREAM.NAMES).

    Raises:
        UsageError: no stream has that name, none accepts the subject, or several do.
    """
    if wanted.stream:
        matches = [stream for stream in streams if stream.name == wanted.stream]
        what = f"there is no stream {wanted.stream}; name an existing one"
    elif not is_valid_filter(wanted.subject):
        what = (
            f"{wanted.subject!r} is not a subject"
            if wanted.subject
            else "no subject is given, either"
        )
        raise UsageError(
            f"a subscription needs a stream to find its consumer, and {what}; name one"
        )
    else:
        matches = [stream for stream in streams if _takes(stream, wanted.subject)]
        what = (
            f"no stream has {wanted.subject!r}; subscribe to a subject of one, or name the stream"
        )
    if not matches:
        raise UsageError(what)
    if len(matches) > 1:
        names = ", ".join(stream.name for stream in matches)
        raise UsageError(
            f"{wanted.subject!r} is a subject of several streams: {names}; name one of them"
        )
    return matches[0]


def _takes(stream: StreamConfig, subject: str) -> bool:
    return any(overlap(subject, pattern) for pattern in stream.subjects)


def subscription_refusals(
    wanted: Subscription,
    stream: StreamConfig,
    existing: ConsumerConfig | None = None,
) -> Iterator[ConfigRefusal]:
    """Yield the reasons why a client must not subscribe, each key being one of `Subscription`.

    Args:
        wanted: the subscription.
        stream: its stream, from `find_stream`.
        existing: the consumer of that name, if there is one.
    """
    yield from _request(wanted)
    if existing is None:
        if wanted.consumer and not wanted.pull:
            text = f"{wanted.consumer} is not on stream {stream.name}; name one that is, or none"
            yield refusal("consumer", text, None)
        return
    yield from _kind(wanted, existing)
    if not wanted.pull and existing.is_push:
        yield from _group(wanted, existing)
    yield from _unapplied(wanted, with_server_defaults(existing, stream), stream)


def _request(wanted: Subscription) -> Iterator[ConfigRefusal]:
    config = wanted.config
    if config is None:
        return
    if wanted.queue and (config.idle_heartbeat or config.flow_control):
        yield refusal("queue config", _SHARED, None)
    says_how = "ack_policy" in config.model_fields_set
    if wanted.pull and says_how and config.ack_policy in {"none", "all"}:
        text = f"a pull consumer acknowledges each message; {config.ack_policy} is refused, write explicit"
        yield refusal("config", text, None)


_SHARED = (
    "heartbeats and flow control would reach any member of the queue; leave out the queue, or"
    " idle_heartbeat and flow_control"
)


def _kind(wanted: Subscription, existing: ConsumerConfig) -> Iterator[ConfigRefusal]:
    filters = existing.filters
    if wanted.subject and filters and wanted.subject not in filters:
        text = f"{wanted.subject!r} is not a filter of {existing.name}; write {', '.join(filters)}"
        yield refusal("subject", text, None)
    if wanted.pull and existing.is_push:
        text = (
            f"{existing.name} pushes to {existing.deliver_subject}; subscribe there, without pull"
        )
        yield refusal("pull", text, None)
    if not wanted.pull and not existing.is_push:
        text = f"{existing.name} pushes nothing; request its messages, with pull"
        yield refusal("pull", text, None)


def _group(wanted: Subscription, existing: ConsumerConfig) -> Iterator[ConfigRefusal]:
    group, name = existing.deliver_group, existing.name
    if wanted.queue and not group:
        yield refusal("queue", f"{name} has no queue; leave the queue out", None)
    elif group and not wanted.queue:
        yield refusal("queue", f"{name} has queue {group}; join it", None)
    elif group != wanted.queue:
        yield refusal("queue", f"{name} has queue {group}, not this one; join it", None)
    if wanted.queue and (existing.idle_heartbeat or existing.flow_control):
        yield refusal("queue", _SHARED, None)


def _unapplied(
    wanted: Subscription, existing: ConsumerConfig, stream: StreamConfig
) -> Iterator[ConfigRefusal]:
    """Refuse a configuration that differs from the existing consumer; only the push subject may change."""
    if wanted.config is None:
        return
    requested = with_server_defaults(wanted.config, stream)
    for key in sorted(wanted.config.model_fields_set - {"deliver_subject"}):
        if getattr(requested, key) != getattr(existing, key):
            text = f"{key} of {existing.name} differs, and a subscription changes nothing; leave it out"
            yield refusal("config", text, None)
