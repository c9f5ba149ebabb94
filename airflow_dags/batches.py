"""Batches: the division of a DAG's streams among tasks that process many streams by one job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_dags.streams import Listed, group_id

MOST_STREAMS = 1000
"""The maximum number of streams of a batch: Airflow maps a task over at most 1,024 values."""
_KEYS = ("group", "tag")


@dataclass(frozen=True)
class Batch:
    """Streams processed by one job."""

    id: str
    """The id of its task group; sentences use it, too."""
    title: str
    """Its display name in Airflow."""
    streams: tuple[str, ...]
    copies: frozenset[str] = frozenset()
    """Those of the streams that a sync copies from a live server."""


def batches(listed: Sequence[Listed], by: int | str) -> list[Batch]:
    """Divide streams into batches.

    Args:
        listed: the streams, in the order of the configuration.
        by: the number of streams per batch; or `group` or `tag`: a batch for each group of the
            configuration or each first tag of a stream, and one for streams without any.

    Raises:
        ValueError: `by` is neither.
    """
    copies = frozenset(stream.name for stream in listed if stream.is_copy)
    return [
        replace(batch, copies=copies.intersection(batch.streams)) for batch in _batches(listed, by)
    ]


def _batches(listed: Sequence[Listed], by: int | str) -> list[Batch]:
    if isinstance(by, str) and by in _KEYS:
        return list(_by_key(listed, by))
    if isinstance(by, bool) or not isinstance(by, int) or not 1 <= by <= MOST_STREAMS:
        raise ValueError(
            f"batch: {by!r} is neither a number of streams from 1 to {MOST_STREAMS:,} nor `group` nor `tag`"
        )
    parts = list(_parts([stream.name for stream in listed], by))
    width = len(str(len(parts)))
    return [
        Batch(f"batch-{number:0{width}}", _range(f"batch {number}", part), part)
        for number, part in enumerate(parts, 1)
    ]


def _by_key(listed: Iterable[Listed], key: str) -> Iterator[Batch]:
    names: dict[str | None, list[str]] = {}
    for stream in listed:
        value = stream.group if key == "group" else next(iter(stream.tags), None)
        names.setdefault(value, []).append(stream.name)
    for value, streams in names.items():
        title = f"no {key}" if value is None else f"{key} {value}"
        identity = group_id(f"no-{key}" if value is None else f"{key}-{value}")
        parts = list(_parts(streams, MOST_STREAMS))
        for number, part in enumerate(parts, 1):
            end = f"-part-{number}" if parts[1:] else ""
            yield Batch(f"{identity}{end}", f"{title}{end}", part)


def _parts(names: Sequence[str], most: int) -> Iterator[tuple[str, ...]]:
    for first in range(0, len(names), most):
        yield tuple(names[first : first + most])


def _range(title: str, names: Sequence[str]) -> str:
    return f"{title}: {names[0]}" + (f" to {names[-1]}" if names[1:] else "")
