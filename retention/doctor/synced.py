"""Checks of a stream that copies a live server's, for messages that its passes remove and the server keeps."""

from __future__ import annotations

from collections.abc import Iterator

from retention.context.context import OpenedStream
from retention.doctor.finding import Finding, ok, warning
from retention.ingest.sync.configuration import difference_notes, kept_configuration

_TOGETHER = ("max_msgs", "max_bytes")
"""Limits that count what the limit per subject removes a step later."""


def check_synced(opened: OpenedStream) -> Iterator[Finding]:
    """Check what a pass over a copy removes that the server, with the same limits, keeps."""
    config = opened.config
    if config.sync is None:
        return
    differs = False
    both = [key for key in _TOGETHER if getattr(config, key) > 0]
    if both and config.max_msgs_per_subject > 0 and config.mode == "update":
        differs = True
        yield warning(
            "sync",
            f"{' and '.join(both)} counts messages here that max_msgs_per_subject removes in the same pass, while the "
            "server applies both at each message: a pass may remove last values of subjects that the server keeps",
            f"set `mode: replay`, or leave {' and '.join(both)} out here, or raise it by what comes between two passes",
            opened.name,
        )
    server = kept_configuration(opened)
    for note in () if server is None else difference_notes(config, server):
        differs = True
        yield warning(
            "sync",
            f"by the server's configuration at the last `sync nats --with-config`, {note}",
            "write the limits that the copy should have; those of the server do not act here",
            opened.name,
        )
    if not differs:
        yield ok("sync", "no limit is known to remove what the server keeps", opened.name)
