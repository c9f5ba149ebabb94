"""The check for the releases that can read a stream, by its directory and its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.doctor.finding import Finding, ok
from retention.stores.layout import (
    CLAIMING_VERSION,
    DROPPING_VERSION,
    HOLDING_VERSION,
    check_format,
)

_SINCE = {
    CLAIMING_VERSION: "reclaim",
    DROPPING_VERSION: "drop",
    HOLDING_VERSION: "hold",
}
"""Format version of a stream's directory → the first command that writes it; releases without it refuse the stream."""


def check_releases(opened: OpenedStream) -> Iterator[Finding]:
    """Report the releases that can read an existing stream."""
    record = check_format(opened.layout, opened.config.format)
    if record is None or not opened.table.exists():
        return
    linked = (
        _linked(opened.store.snapshot().counters)
        if opened.table_format.refuses_new_counters
        else []
    )
    detail = readers(record.version, linked)
    yield ok("releases", detail, opened.name)


def _linked(counters: Counters) -> list[str]:
    """The refusals by earlier releases of a log of our own that names manifests or runs."""
    links = {
        "an archive's manifests, which releases without `repair place` refuse as damage (6)": counters.archive_head,
        "the last run in the chain of its history, which releases without `verify` refuse": counters.history_head,
    }
    return [f"its log names {linked}" for linked, head in links.items() if head]


def readers(version: int, linked: Sequence[str]) -> str:
    """The releases that can read a stream.

    Args:
        version: the format version of its directory.
        linked: the refusals that follow from its log.
    """
    since = _SINCE.get(version)
    refusals = [*([f"releases without `{since}` refuse it (4)"] if since else []), *linked]
    return f"format version {version}: {'; '.join(refusals) or 'every release reads it'}"
