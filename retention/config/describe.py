"""A configuration in words, for users who want to know its effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retention.config.keeping import Approval
from retention.config.load import Config
from retention.config.stream import StreamConfig
from retention.config.topic_stream import TopicStream
from retention.core.policy import describe
from retention.core.removal_guards import RemovalGuards
from retention.core.units import format_size, spell_duration
from retention.core.wording import counted

MOST_LINES = 20
"""The maximum number of streams with a line each; beyond it, streams with the same effect share one."""


def explain_config(config: Config) -> list[str]:
    """Describe the effect of each stream's settings, a line each; if there are many, a line per distinct effect."""
    if not config.streams:
        return [f"{config.warehouse}: no stream is listed, so nothing is ever removed"]
    if len(config.streams) <= MOST_LINES:
        return [explain_stream(stream) for stream in config.streams]
    names: dict[str, list[str]] = {}
    for stream in config.streams:
        names.setdefault(_meaning(stream), []).append(stream.name)
    return [f"{_several(alike)}: {meaning}" for meaning, alike in names.items()]


def explain_stream(stream: StreamConfig) -> str:
    """Describe the effect of one stream's settings: its rules first, then its storage."""
    return f"{stream.name}: {_meaning(stream)}"


def _meaning(stream: StreamConfig) -> str:
    first, *others = [*describe(stream.policy()), *_facts(stream)]
    sentences = [first, *(text[0].upper() + text[1:] for text in others)]
    return f"{'. '.join(sentences)}."


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"{names[0]}{more}"


def _facts(stream: StreamConfig) -> list[str]:
    facts = list(_left_to_the_server(stream))
    if stream.sealed:
        facts.append("it is sealed: nothing can be published")
    if stream.discard_new_per_subject:
        facts.append("a message on a subject that is full is refused")
    if stream.consumers:
        names = ", ".join(consumer.name for consumer in stream.consumers)
        facts.append(f"these consumers are created or updated: {names}")
    facts += _guards(stream.guards.rule())
    if stream.group is not None:
        facts.append(f"its other settings come from group {stream.group}")
    if stream.tags:
        facts.append(f"its tags are {', '.join(stream.tags)}")
    span = f" or {spell_duration(stream.segment_span)}" if stream.segment_span else ""
    apart = ", divided by deadline" if stream.most_files > 1 else ""
    facts.append(
        f"kept as {stream.format.capitalize()} in segments of {format_size(stream.segment_size)}"
        f"{span}{apart}; removed files are kept {spell_duration(stream.grace)}"
    )
    if stream.approve is not None:
        facts.append(f"scheduled jobs ask a person {_approval(stream.approve)}")
    return facts


def _guards(guards: RemovalGuards) -> Iterator[str]:
    bounds = (
        (guards.max_removed_share, "removes more than {}% of the messages", str),
        (guards.max_removed_bytes, "removes more than {}", format_size),
        (guards.min_kept_messages, "keeps fewer than {} messages", "{:,}".format),
    )
    for guard, text, written in bounds:
        # A minimum of zero is always met.
        if guard is not None and not (guard is guards.min_kept_messages and guard.limit == 0):
            then = "is refused" if guard.then == "refuse" else "reports it"
            yield f"a pass that {text.format(written(guard.limit))} {then}"


def _approval(approve: Approval) -> str:
    bounds = []
    if approve.above_messages == 0:
        return "before any message is removed"
    if approve.above_messages is not None:
        bounds.append(f"{counted(approve.above_messages, 'message')}")
    if approve.above_bytes is not None:
        bounds.append(format_size(approve.above_bytes))
    return f"before removing more than {' or '.join(bounds)} at once"


def _left_to_the_server(stream: StreamConfig) -> Iterator[str]:
    if isinstance(stream, TopicStream) and stream.settings.defaulted:
        names = ", ".join(stream.settings.defaulted)
        yield f"left to the server, and fixed when the topic is created: {names}"
