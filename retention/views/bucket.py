"""A bucket's numbers and settings as text."""

from __future__ import annotations

from collections.abc import Iterator

from retention.buckets.status import BucketStatus
from retention.core.units import format_duration, format_size
from retention.core.wording import counted


def status_text(status: BucketStatus) -> Iterator[str]:
    """The status of a bucket as text."""
    yield f"bucket {status.bucket}, stream {status.stream}, {status.format.capitalize()}"
    if status.mirrors is not None:
        yield f"  mirrors {status.mirrors}"
    yield (
        f"  {counted(status.keys, 'key')} with a value; {counted(status.values, 'message')} "
        f"({format_size(status.bytes)}) in all"
    )
    settings = {
        "history": None if status.history is None else str(status.history),
        "ttl": _duration(status.ttl_ns),
        "limit marker ttl": _duration(status.limit_marker_ttl_ns),
        "max bytes": _size(status.max_bytes),
        "max value size": _size(status.max_value_size),
    }
    for name, value in settings.items():
        yield f"  {name}: {value or 'none'}"


def _duration(ns: int | None) -> str | None:
    return None if ns is None else format_duration(ns)


def _size(size: int | None) -> str | None:
    return None if size is None else format_size(size)
