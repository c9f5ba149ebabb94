"""The check for the releases that can read a stream, by its directory and its log."""

from __future__ import annotations

from collections.abc import Iterator

from retention.context.context import OpenedStream
from retention.doctor.finding import Finding, ok
from retention.stores.layout import CLAIMING_VERSION, DROPPING_VERSION, check_format

_SINCE = {CLAIMING_VERSION: "reclaim", DROPPING_VERSION: "drop"}
"""Format version of a stream's directory → the first command that writes it; releases without it refuse the stream."""


def check_releases(opened: OpenedStream) -> Iterator[Finding]:
    """Report the releases that can read an existing stream."""
    record = check_format(opened.layout, opened.config.format)
    if record is None or not opened.store.exists():
        return
    is_linked = bool(opened.store.snapshot().counters.archive_head)
    detail = readers(record.version, linked_log=is_linked and opened.table_format.links_archives)
    yield ok("releases", detail, opened.name)


def readers(version: int, *, linked_log: bool) -> str:
    """The releases that can read a stream.

    Args:
        version: the format version of its directory.
        linked_log: whether entries of its own log name manifests of an archive.
    """
    refusals = []
    if version in _SINCE:
        refusals.append(f"releases without `{_SINCE[version]}` refuse it (4)")
    if linked_log:
        refusals.append(
            "its log names an archive's manifests, which releases without `repair place` refuse as damage (6)"
        )
    return f"format version {version}: {'; '.join(refusals) or 'every release reads it'}"
