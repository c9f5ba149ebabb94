"""The refusals of streams and topics that are kept in step with a live server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from retention.config.types import ConfigRefusal, refusal
from retention.core.subjects import is_valid_name

if TYPE_CHECKING:
    from retention.config.nested import TopicSyncSource
    from retention.config.stream_fields import StreamFields

_SECRETS = "and this file keeps no secrets"
_EXCLUDED = {
    "mirror": "its messages come from a live server",
    "sources": "its messages come from a live server",
    "subject_transform": "messages keep their subjects",
    "first_seq": "messages keep the server's sequences",
    "subject_delete_marker_ttl": "markers would take sequences of the server, which writes its own",
}


def sync_refusals(stream: StreamFields) -> Iterator[ConfigRefusal]:
    """The refusals of a stream's `sync`, and of what excludes it."""
    sync = stream.sync
    if sync is None:
        return
    for key, why in _EXCLUDED.items():
        if getattr(stream, key):
            yield refusal(f"{key} sync", f"excludes sync: {why}; leave one of them out", None)
    if sync.server and sync.context:
        text = "server and context exclude each other; choose one"
        yield refusal("sync", text, None)
    if sync.stream and not is_valid_name(sync.stream):
        yield refusal("sync", f"{sync.stream!r} is not a stream's name", None)
    if any("@" in url for url in sync.server.split(",")):
        text = (
            f"server has a user or a token in its URL, {_SECRETS}; write the URL without it, and "
            "put it into a context (`nats context add`)"
        )
        yield refusal("sync", text, None)


def topic_sync_refusals(
    sync: TopicSyncSource | None, stream: str | None
) -> Iterator[ConfigRefusal]:
    """The refusals of a topic's `sync`.

    Args:
        sync: the topic's `sync`.
        stream: the topic's `stream`, the default of that of `sync`.
    """
    if sync is None:
        return
    if "@" in sync.server:
        text = (
            f"server has a user or a token in it, {_SECRETS}; write HOST:PORT, and set IGGY_USERNAME and "
            "IGGY_PASSWORD, or IGGY_TOKEN, where the sync runs"
        )
        yield refusal("sync", text, None)
    if not (sync.stream or stream):
        yield refusal("sync", "names no stream of the server; write stream", None)
    if sync.max_missed < 0:
        yield refusal("sync", "max_missed is at least 0; write a higher number", None)
