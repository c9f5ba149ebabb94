"""A configuration in words, for users who want to know its effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retention.config.describe_runs import approval_in_words, as_sentences, guards_in_words
from retention.config.describe_table import table_in_words
from retention.config.load import Config
from retention.config.stream import StreamConfig
from retention.config.topic_stream import TopicStream
from retention.core.policy import describe
from retention.core.units import format_size, spell_duration

MOST_LINES = 20
"""The maximum number of streams and tables with a line each; beyond it, those with the same effect share one."""


def explain_config(config: Config) -> list[str]:
    """Describe the effect of each stream's and table's settings; if there are many, a line per distinct effect."""
    meanings = {stream.name: _meaning(stream) for stream in config.streams}
    meanings |= {table.name: table_in_words(table) for table in config.tables}
    if not meanings:
        return [f"{config.warehouse}: no stream is listed, so nothing is ever removed"]
    if len(meanings) <= MOST_LINES:
        return [f"{name}: {meaning}" for name, meaning in meanings.items()]
    names: dict[str, list[str]] = {}
    for name, meaning in meanings.items():
        names.setdefault(meaning, []).append(name)
    return [f"{_several(alike)}: {meaning}" for meaning, alike in names.items()]


def explain_stream(stream: StreamConfig) -> str:
    """Describe the effect of one stream's settings: its rules first, then its storage."""
    return f"{stream.name}: {_meaning(stream)}"


def _meaning(stream: StreamConfig) -> str:
    return as_sentences([*describe(stream.policy()), *_facts(stream)])


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"{names[0]}{more}"


def _facts(stream: StreamConfig) -> list[str]:
    facts = [*_copy_in_words(stream), *_left_to_the_server(stream)]
    if stream.sealed:
        facts.append("it is sealed: nothing can be published")
    if stream.discard_new_per_subject:
        facts.append("a message on a subject that is full is refused")
    if stream.consumers:
        names = ", ".join(consumer.name for consumer in stream.consumers)
        facts.append(f"these consumers are created or updated: {names}")
    facts += guards_in_words(stream.guards.rule(), "message")
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
    if stream.vectors:
        facts.append(
            "a new table has deletion vectors, an existing one keeps what it has; deltalake's to_pyarrow and to_pandas"
            " refuse such a table, Spark and Polars read it"
        )
    if stream.approve is not None:
        facts.append(approval_in_words(stream.approve, "message"))
    return facts


def _copy_in_words(stream: StreamConfig) -> Iterator[str]:
    """The live server's stream or topic that a copy is kept in step with."""
    if stream.sync is not None:
        where = stream.sync.server or (
            f"the context {stream.sync.context}"
            if stream.sync.context
            else "the server that the environment names"
        )
        yield (
            f"it is a copy of stream {stream.sync.stream or stream.name} at {where}: only a sync writes to it, and its "
            "limits are its own"
        )
    elif stream.topic is not None and stream.topic.sync is not None:
        sync = stream.topic.sync
        where = sync.server or "the server that the environment names"
        yield (
            f"it is a copy of topic {sync.topic or stream.name} at {where}: only a sync writes to it, and its limits "
            "are its own"
        )


def _left_to_the_server(stream: StreamConfig) -> Iterator[str]:
    if isinstance(stream, TopicStream) and stream.settings.defaulted:
        names = ", ".join(stream.settings.defaulted)
        yield f"left to the server, and fixed when the topic is created: {names}"
