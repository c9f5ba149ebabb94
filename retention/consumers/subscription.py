"""Subscribing to a consumer: which stream it is on, and what a client must not ask of it (ADR-15)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import resolved
from retention.config.types import Refusal, refusal
from retention.core.subjects import is_valid_filter, overlap
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.config.stream import StreamConfig


@dataclass(frozen=True)
class Subscription:
    """What a client asks for; the empty text stands for what it does not say."""

    subject: str = ""
    stream: str = ""
    consumer: str = ""
    """The name of a consumer that is there already."""
    queue: str = ""
    """The group whose members share what is pushed."""
    pull: bool = False
    config: ConsumerConfig | None = None


def stream_of(wanted: Subscription, streams: Collection[StreamConfig]) -> StreamConfig:
    """The stream that a subscription is for: by its name, or by the subject alone (server: STREAM.NAMES).

    Raises:
        UsageError: none is named so, none takes the subject, or several do.
    """
    if wanted.stream:
        found = [stream for stream in streams if stream.name == wanted.stream]
        what = f"stream {wanted.stream} is not there; name one that is"
    elif not is_valid_filter(wanted.subject):
        what = (
            f"{wanted.subject!r} is no subject" if wanted.subject else "no subject is given, either"
        )
        raise UsageError(
            f"a subscription names no stream by which to find its consumer, and {what}; name one"
        )
    else:
        found = [one for one in streams if _takes(one, wanted.subject)]
        what = (
            f"no stream takes {wanted.subject!r}; subscribe to a subject of one, or name the stream"
        )
    if not found:
        raise UsageError(what)
    if len(found) > 1:
        names = ", ".join(stream.name for stream in found)
        raise UsageError(
            f"{wanted.subject!r} is taken by several streams: {names}; name one of them"
        )
    return found[0]


def _takes(stream: StreamConfig, subject: str) -> bool:
    return any(overlap(subject, own) for own in stream.subjects)


def subscription_refusals(
    wanted: Subscription,
    stream: StreamConfig,
    existing: ConsumerConfig | None = None,
) -> Iterator[Refusal]:
    """Why a client must not subscribe, each key being one of `Subscription`.

    Args:
        wanted: the subscription.
        stream: the one that it is for, of `stream_of`.
        existing: the consumer of that name, if there is one.
    """
    yield from _asked(wanted)
    if existing is None:
        if wanted.consumer and not wanted.pull:
            text = f"{wanted.consumer} is not on stream {stream.name}; name one that is, or none"
            yield refusal("consumer", text, None)
        return
    yield from _kind(wanted, existing)
    if not wanted.pull and existing.is_push:
        yield from _group(wanted, existing)
    yield from _unapplied(wanted, resolved(existing, stream), stream)


def _asked(wanted: Subscription) -> Iterator[Refusal]:
    config = wanted.config
    if config is None:
        return
    if wanted.queue and (config.idle_heartbeat or config.flow_control):
        yield refusal("queue config", _SHARED, None)
    says_how = "ack_policy" in config.model_fields_set
    if wanted.pull and says_how and config.ack_policy in {"none", "all"}:
        text = f"who asks for messages acknowledges each; {config.ack_policy} is refused, write explicit"
        yield refusal("config", text, None)


_SHARED = (
    "heartbeats and flow control would reach any member of the queue; leave out the queue, or"
    " idle_heartbeat and flow_control"
)


def _kind(wanted: Subscription, existing: ConsumerConfig) -> Iterator[Refusal]:
    filters = existing.filters
    if wanted.subject and filters and wanted.subject not in filters:
        text = f"{wanted.subject!r} is not what {existing.name} takes; write {', '.join(filters)}"
        yield refusal("subject", text, None)
    if wanted.pull and existing.is_push:
        text = (
            f"{existing.name} pushes to {existing.deliver_subject}; subscribe there, do not ask it"
        )
        yield refusal("pull", text, None)
    if not wanted.pull and not existing.is_push:
        text = f"{existing.name} pushes nothing; ask it for messages, with pull"
        yield refusal("pull", text, None)


def _group(wanted: Subscription, existing: ConsumerConfig) -> Iterator[Refusal]:
    group, name = existing.deliver_group, existing.name
    if wanted.queue and not group:
        yield refusal("queue", f"{name} was made without a queue; leave the queue out", None)
    elif group and not wanted.queue:
        yield refusal("queue", f"{name} was made for queue {group}; join that", None)
    elif group != wanted.queue:
        yield refusal(
            "queue", f"{name} was made for queue {group}, which this is not; join that", None
        )
    if wanted.queue and (existing.idle_heartbeat or existing.flow_control):
        yield refusal("queue", _SHARED, None)


def _unapplied(
    wanted: Subscription, existing: ConsumerConfig, stream: StreamConfig
) -> Iterator[Refusal]:
    """What the client says of a consumer that is otherwise; only where it pushes to may change."""
    if wanted.config is None:
        return
    asked = resolved(wanted.config, stream)
    for key in sorted(wanted.config.model_fields_set - {"deliver_subject"}):
        if getattr(asked, key) != getattr(existing, key):
            text = f"{key} of {existing.name} is another, and subscribing changes nothing; leave it out"
            yield refusal("config", text, None)
