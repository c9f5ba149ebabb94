"""The server's refusals of a stream because of the other streams of its account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retention.config.document import Mistake, Place
from retention.config.nested import StreamSource
from retention.config.stream import StreamConfig
from retention.config.table import TableConfig
from retention.config.topic import TopicConfig
from retention.config.types import refusal
from retention.core.filter_index import FilterIndex
from retention.core.subjects import is_valid_filter, overlap

Written = Mapping[Place, Mapping[str, Any]]
"""Streams as written, some of them with other mistakes."""


def cross_stream_mistakes(
    written: Written, streams: Mapping[Place, StreamConfig]
) -> Iterator[Mistake]:
    """The mistakes between streams: names used twice, overlapping subjects, origins with larger messages, cycles."""
    yield from _names(written)
    yield from _subjects(written)
    yield from _message_sizes(streams)
    yield from _cycles(streams)


def name_mistakes(
    streams: Mapping[Place, StreamConfig],
    topics: Mapping[Place, TopicConfig],
    tables: Mapping[Place, TableConfig],
) -> Iterator[Mistake]:
    """The mistakes of topics and tables that share the name of a stream, or of one another."""
    taken = {stream.name for stream in streams.values()}
    for listed, kinds in (
        (topics, "a stream or another topic"),
        (tables, "a stream, a topic or another table"),
    ):
        for place, item in listed.items():
            if item.name in taken:
                text = f"{kinds} has this name, and they share one space; rename one"
                yield Mistake((*place, "name"), text)
            taken.add(item.name)


def _names(written: Written) -> Iterator[Mistake]:
    names = set()
    for place, values in written.items():
        name = str(values.get("name"))
        if name in names and "name" in values:
            text = "another stream has this name; rename or remove one"
            yield Mistake((*place, "name"), refusal("name", text, 10058).text)
        names.add(name)


def _subjects(written: Written) -> Iterator[Mistake]:
    taken = FilterIndex()
    for place, values in written.items():
        subjects = _effective_subjects(values)
        for subject in subjects:
            rival = taken.first_overlap(subject)
            if rival is not None:
                text = f"{subject!r} overlaps with {rival.subject!r} of stream {rival.owner}; change one"
                yield Mistake((*place, "subjects"), refusal("subjects", text, 10065).text)
        for subject in subjects:
            taken.add(subject, str(values.get("name")))


def _effective_subjects(values: Mapping[str, object]) -> list[str]:
    listed = values.get("subjects")
    takes = any(values.get(key) not in (None, [], {}) for key in ("mirror", "sources"))
    if not listed and not takes and values.get("sync") is None:
        listed = [values.get("name")]
    subjects = listed if isinstance(listed, list) else []
    return [
        subject for subject in subjects if isinstance(subject, str) and is_valid_filter(subject)
    ]


def _message_sizes(streams: Mapping[Place, StreamConfig]) -> Iterator[Mistake]:
    sizes = {stream.name: stream.max_msg_size for stream in streams.values()}
    codes = {"mirror": 10030, "sources": 10046}
    for place, stream in streams.items():
        for key, origin in _origins(stream):
            size = sizes.get(origin.name, 0)
            if 0 < stream.max_msg_size < size:
                text = f"{stream.max_msg_size} is below that of {origin.name}; write {size}"
                yield Mistake((*place, "max_msg_size"), refusal(key, text, codes[key]).text)


def _cycles(streams: Mapping[Place, StreamConfig]) -> Iterator[Mistake]:
    """The mistakes of streams that would receive their own messages, if they were created in the order of the file."""
    known: dict[str, StreamConfig] = {}
    for place, stream in streams.items():
        known[stream.name] = stream
        closing = next(_closing(stream, known), None)
        if closing is not None:
            key = "mirror" if stream.mirror is not None else "sources"
            text = f"its messages return through {closing}; leave one of the origins out"
            yield Mistake((*place, key), refusal(key, text).text)


def _closing(stream: StreamConfig, known: Mapping[str, StreamConfig]) -> Iterator[str]:
    """The names of streams upstream of `stream`, including itself, that take messages from it and may store them.

    Verified with a server 2.15.1.
    """
    waiting, visited = [stream], {stream.name}
    while waiting:
        upstream = waiting.pop()
        for _, origin in _origins(upstream):
            wanted = origin.filter_subject
            taken = not wanted or any(overlap(wanted, subject) for subject in upstream.subjects)
            if origin.name == stream.name and taken:
                yield upstream.name
            if origin.name in known and origin.name not in visited:
                visited.add(origin.name)
                waiting.append(known[origin.name])


def _origins(stream: StreamConfig) -> Iterator[tuple[str, StreamSource]]:
    """Mirror and sources that are streams of the same account, with their keys."""
    origins = [("mirror", stream.mirror)] if stream.mirror is not None else []
    origins += [("sources", source) for source in stream.sources]
    yield from ((key, origin) for key, origin in origins if origin.external is None)
