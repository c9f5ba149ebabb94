"""Spans: the smallest ranges of a stream's sequences that whole files cover, with their summed statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.core.column_values import filled_numbers
from retention.schemas.deadlines import NEVER

Array = np.ndarray


@dataclass(frozen=True)
class Spans:
    """One entry per span, ascending by lowest sequence; spans are disjoint, except as in `spans_of`.

    A span is one file, or several files of a segment with interleaved sequences (from a layout by
    deadline, or from another writer's shuffle). Each array has one int64 per span, except
    `first_file`, which has one more: span `i` consists of the inventory's files `first_file[i]` to
    `first_file[i + 1] - 1`.
    """

    first_file: Array
    partition: Array
    segment: Array
    messages: Array
    bytes: Array
    min_seq: Array
    max_seq: Array
    min_ts_ns: Array
    max_ts_ns: Array
    never: Array
    deadlines: Array
    min_deadline_ns: Array
    """The first deadline; `NEVER` if the span has no deadline except `never`."""
    max_deadline_ns: Array
    """The last deadline; the lowest int64 if the span has no deadline except `never`."""
    markers: Array

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def span_of_file(self) -> Array:
        """The number of the span of each file of the inventory."""
        return np.repeat(np.arange(len(self)), np.diff(self.first_file))


def spans_of(files: pa.Table, apart: Array | None = None) -> Spans:
    """Group files into spans.

    Args:
        files: an inventory's (`FILE_STATS`, sorted by partition, segment, lowest sequence).
        apart: a mask of files to keep as spans of their own, even if their sequences interleave
    with those of others.
    """
    column = {name: files[name].to_numpy() for name in _COLUMNS}
    for name, absent in _ABSENT.items():
        column[name] = filled_numbers(files[name], absent)
    begins = _begins(column)
    if apart is not None:
        begins = begins | apart
    return _folded(column, np.flatnonzero(begins), np.arange(files.num_rows + 1))


def some_spans(spans: Spans, wanted: Array) -> Spans:
    """The spans in `wanted`, a mask, as those of an inventory with their files alone."""
    files = np.diff(spans.first_file)[wanted]
    column = {name: getattr(spans, name)[wanted] for name in (*_COLUMNS, *_ABSENT)}
    return Spans(first_file=np.append(0, np.cumsum(files)), **column)


def joined(spans: Spans) -> Spans:
    """Join interleaved spans, such as separate spans of `apart` files."""
    column = {name: getattr(spans, name) for name in (*_COLUMNS, *_ABSENT)}
    return _folded(column, np.flatnonzero(_begins(column)), spans.first_file)


def by_segment(spans: Spans) -> Spans:
    """The statistics of whole segments, in the order of the stream: one entry per segment instead of one per span."""
    column = {name: getattr(spans, name) for name in (*_COLUMNS, *_ABSENT)}
    new = (np.diff(spans.partition) != 0) | (np.diff(spans.segment) != 0)
    starts = np.flatnonzero(np.append(np.ones(min(len(spans), 1), dtype=bool), new))
    return _folded(column, starts, spans.first_file)


def _folded(column: dict[str, Array], starts: Array, first_file: Array) -> Spans:
    def folded(name: str, fold: np.ufunc) -> Array:
        return fold.reduceat(column[name], starts) if len(starts) else column[name]

    return Spans(
        first_file=first_file[np.append(starts, len(first_file) - 1)],
        partition=column["partition"][starts].astype(np.int64),
        segment=column["segment"][starts],
        messages=folded("messages", np.add),
        bytes=folded("bytes", np.add),
        min_seq=column["min_seq"][starts],
        max_seq=folded("max_seq", np.maximum),
        min_ts_ns=folded("min_ts_ns", np.minimum),
        max_ts_ns=folded("max_ts_ns", np.maximum),
        never=folded("never", np.add),
        deadlines=folded("deadlines", np.add),
        min_deadline_ns=folded("min_deadline_ns", np.minimum),
        max_deadline_ns=folded("max_deadline_ns", np.maximum),
        markers=folded("markers", np.add),
    )


_COLUMNS = (
    "partition",
    "segment",
    "messages",
    "bytes",
    "min_seq",
    "max_seq",
    "min_ts_ns",
    "max_ts_ns",
    "never",
    "deadlines",
    "markers",
)
_ABSENT = {"min_deadline_ns": NEVER, "max_deadline_ns": int(np.iinfo(np.int64).min)}


def _begins(column: dict[str, Array]) -> Array:
    """A mask of the files that begin a span: in a new partition, or above every sequence of the previous files."""
    if not len(column["partition"]):
        return np.zeros(0, dtype=bool)
    begins = np.ones(len(column["partition"]), dtype=bool)
    bounds = np.append(np.flatnonzero(np.diff(column["partition"])) + 1, len(begins))
    start = 0
    for end in bounds:
        highest_before = np.maximum.accumulate(column["max_seq"][start:end])[:-1]
        begins[start + 1 : end] = column["min_seq"][start + 1 : end] > highest_before
        start = end
    return begins
