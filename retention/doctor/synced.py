"""Checks of copies of live servers' streams and topics, for messages that a pass removes and the server keeps."""

from __future__ import annotations

from collections.abc import Iterator

from retention.context.context import OpenedStream
from retention.doctor.finding import Finding, ok, warning
from retention.ingest.sync.configuration import difference_notes, kept_configuration
from retention.ingest.sync.iggy.configuration import topic_difference_notes

_TOGETHER = ("max_msgs", "max_bytes")
"""Limits that count what the limit per subject removes a step later."""


def check_synced(opened: OpenedStream) -> Iterator[Finding]:
    """Check what a pass over a copy removes that the server, with the same limits, keeps."""
    topic = opened.config.topic
    if topic is not None and topic.sync is not None:
        warnings = list(_topic_differences(opened))
    elif opened.config.sync is not None:
        warnings = [*_limits_together(opened), *_differences(opened)]
    else:
        return
    yield from warnings
    if not warnings:
        yield ok("sync", "no limit is known to remove what the server keeps", opened.name)


def _limits_together(opened: OpenedStream) -> Iterator[Finding]:
    config = opened.config
    both = [key for key in _TOGETHER if getattr(config, key) > 0]
    if both and config.max_msgs_per_subject > 0 and config.mode == "update":
        yield warning(
            "sync",
            f"{' and '.join(both)} counts messages here that max_msgs_per_subject removes in the same pass, while the "
            "server applies both at each message: a pass may remove last values of subjects that the server keeps",
            f"set `mode: replay`, or leave {' and '.join(both)} out here, or raise it by what comes between two passes",
            opened.name,
        )


def _differences(opened: OpenedStream) -> Iterator[Finding]:
    server = kept_configuration(opened)
    for note in () if server is None else difference_notes(opened.config, server):
        yield _differing(opened, "sync nats", note)


def _topic_differences(opened: OpenedStream) -> Iterator[Finding]:
    server = kept_configuration(opened)
    for note in () if server is None else topic_difference_notes(opened, server):
        yield _differing(opened, "sync iggy", note)


def _differing(opened: OpenedStream, synced_by: str, note: str) -> Finding:
    return warning(
        "sync",
        f"by the server's configuration at the last `{synced_by} --with-config`, {note}",
        "write the limits that the copy should have; those of the server do not act here",
        opened.name,
    )
