"""Planning of a compaction, from statistics alone: the files worth merging, and their target segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from retention.config.keeping import Compaction
from retention.core.inventory import Inventory
from retention.core.spans import Array, Spans, by_segment, spans_of
from retention.plan.compaction import CompactionPlan, Merge, Reason
from retention.stores.file_paths import merged_mask

NO_HIDDEN_ROWS: Mapping[str, int] = {}
"""The hidden rows of a table without deletion vectors."""
_PARTS = 1.5
"""No segment has more than two thirds of a merge's messages, so that a small gain does not rewrite much data."""


@dataclass(frozen=True)
class MergeBounds:
    """The bounds of merges in a compaction."""

    settings: Compaction
    segment_size: int
    """The bytes of a segment, by the broker's accounting; a file of 1/`min_files` of them is not merged."""
    segment_span_ns: int | None = None
    """The longest time between the first and the last message of a segment; None: no bound."""
    joins_segments: bool = True
    """Whether neighbouring segments are merged; not if segments are only removed completely."""
    most_files: int = 1
    """The maximum number of files of a merge, with messages divided by deadline."""


def plan_merges(
    inventory: Inventory, bounds: MergeBounds, hidden: Mapping[str, int] = NO_HIDDEN_ROWS
) -> CompactionPlan:
    """Plan the worthwhile merges, best first; no data file is opened.

    Args:
        inventory: the stream.
        bounds: limits and thresholds of merges.
        hidden: the number of rows of files that deletion vectors hide, by path.
    """
    files = inventory.files
    spans = spans_of(files)
    stream = _SpannedFiles(files, spans, bounds)
    merges, taken = [], np.zeros(len(spans), dtype=bool)
    for reason, first, last in (
        *_hollow_runs(inventory, stream),
        *_small_segments(inventory, stream),
        *_small_runs(stream),
        *_shuffled_spans(stream),
        *_dead_spans(stream, hidden),
    ):
        if not taken[first:last].any():
            taken[first:last] = True
            merges.append(stream.merge(reason, first, last))
    return CompactionPlan(
        inventory.stream,
        inventory.table_id,
        inventory.version,
        inventory.counters.epoch,
        tuple(sorted(merges, key=_rank)),
        files.num_rows,
    )


@dataclass(frozen=True)
class _SpannedFiles:
    """A stream's files, in spans that a merge does not split."""

    files: pa.Table
    spans: Spans
    bounds: MergeBounds

    @cached_property
    def counts(self) -> Array:
        """The number of files of each span."""
        return np.diff(self.spans.first_file)

    @cached_property
    def merged(self) -> Array:
        """The number of files of each span written by a merge."""
        return self.of_span(merged_mask(self.files["path"]).to_numpy().astype(np.int64))

    def bounds_of(self, segments: Spans) -> Array:
        """The first span of each segment, followed by the number of spans."""
        return np.searchsorted(self.spans.first_file, segments.first_file)

    def of_span(self, values: Array) -> Array:
        """Sums over the files of each span."""
        return np.add.reduceat(values, self.spans.first_file[:-1]) if len(self.spans) else values

    def saves(self, first: int, last: int) -> int:
        """The minimum reduction of files by a merge of the spans from `first` up to `last` (exclusive)."""
        counts = self.counts[first:last]
        return int(counts.sum()) - _files_after(counts, self.bounds.most_files)

    def merge(self, reason: Reason, first: int, last: int) -> Merge:
        """The merge of the spans from `first` up to `last` (exclusive)."""
        start, end = (int(self.spans.first_file[at]) for at in (first, last))
        counts = self.counts[first:last]
        return Merge(
            reason,
            self.files.slice(start, end - start),
            tuple(counts.tolist()),
            _files_after(counts, self.bounds.most_files),
        )


def _files_after(counts: Array, most_files: int) -> int:
    """The number of files after a merge of spans: the highest file count of one span, at most `most_files`."""
    return 1 if most_files == 1 else min(max(int(counts.max()), 1), most_files)


def _hollow_runs(inventory: Inventory, stream: _SpannedFiles) -> Iterator[tuple[Reason, int, int]]:
    """Runs of sealed neighbours with remaining messages that fit into one segment."""
    limits = stream.bounds
    if not limits.joins_segments or not len(stream.spans):
        return
    segments = by_segment(stream.spans)
    bounds = stream.bounds_of(segments).tolist()
    ends = _ends(inventory, segments)
    share = limits.settings.dead_share / 100
    hollow = segments.messages <= (ends - segments.segment) * (1 - share)
    may_merge = hollow & _sealed(inventory, segments)
    for start, end in _fitting(segments, may_merge, limits.segment_size, limits.segment_span_ns):
        sizes = segments.bytes[start:end]
        for first, last in light_runs(sizes, sizes * _PARTS, 2):
            yield "hollow_segments", bounds[start + first], bounds[start + last]


def _small_segments(
    inventory: Inventory, stream: _SpannedFiles
) -> Iterator[tuple[Reason, int, int]]:
    """Runs of many small sealed neighbours; together they form one small segment, of any duration.

    A layout by deadline bounds the duration, because merged messages of equal lifetime would not expire together.
    """
    limits, least = stream.bounds, stream.bounds.settings.min_files
    if not limits.joins_segments or not len(stream.spans):
        return
    segments = by_segment(stream.spans)
    bounds = stream.bounds_of(segments)
    sizes = np.add.reduceat(stream.of_span(stream.files["file_bytes"].to_numpy()), bounds[:-1])
    weights = np.where(np.add.reduceat(stream.merged, bounds[:-1]) > 0, sizes * float(least), 0.0)
    most = min(limits.settings.min_segment, limits.segment_size)
    may_merge = (segments.bytes < most) & _sealed(inventory, segments)
    span_ns = None if limits.most_files == 1 else limits.segment_span_ns
    for start, end in _fitting(segments, may_merge, most, span_ns):
        for first, last in light_runs(sizes[start:end], weights[start:end], 2):
            run = int(bounds[start + first]), int(bounds[start + last])
            if stream.saves(*run) >= least - 1:
                yield "small_segments", *run


def _sealed(inventory: Inventory, segments: Spans) -> Array:
    """A mask of the segments that appends no longer write to."""
    open_base = inventory.counters.open_base
    return segments.segment < np.array([open_base.get(p, 0) for p in segments.partition.tolist()])


def _ends(inventory: Inventory, segments: Spans) -> Array:
    """The sequence after each segment: the next base, or the next sequence after the last segment."""
    next_seq = inventory.counters.next_seq
    behind = np.array([next_seq.get(p, 0) for p in segments.partition.tolist()], dtype=np.int64)
    ends = np.maximum(behind, segments.max_seq + 1)
    same = segments.partition[1:] == segments.partition[:-1]
    ends[:-1] = np.where(same, segments.segment[1:], ends[:-1])
    return ends


def _fitting(
    segments: Spans, may_merge: Array, most_bytes: int, span_ns: int | None
) -> Iterator[tuple[int, int]]:
    """Runs of two or more neighbours within a total size and duration, collected greedily in order."""
    start = 0
    while start < len(segments):
        total = int(segments.bytes[start])
        low, high = int(segments.min_ts_ns[start]), int(segments.max_ts_ns[start])
        end = start + 1
        while may_merge[start] and end < len(segments) and may_merge[end]:
            total += int(segments.bytes[end])
            low, high = (
                min(low, int(segments.min_ts_ns[end])),
                max(high, int(segments.max_ts_ns[end])),
            )
            is_wide = span_ns is not None and high - low >= span_ns
            if (
                total > most_bytes
                or is_wide
                or segments.partition[end] != segments.partition[start]
            ):
                break
            end += 1
        if end - start > 1:
            yield start, end
        start = end


def _small_runs(stream: _SpannedFiles) -> Iterator[tuple[Reason, int, int]]:
    """Runs of many neighbouring files of one segment, small or never merged before."""
    spans, least = stream.spans, stream.bounds.settings.min_files
    sizes = stream.of_span(stream.files["file_bytes"].to_numpy())
    weights = np.where(stream.merged > 0, sizes * float(least), 0.0)
    weights[spans.bytes * least >= stream.bounds.segment_size] = np.inf
    new = (np.diff(spans.partition) != 0) | (np.diff(spans.segment) != 0)
    edges = np.concatenate([[0], np.flatnonzero(new) + 1, [len(spans)]])
    for start, end in np.stack([edges[:-1], edges[1:]], axis=1)[np.diff(edges) > 1].tolist():
        for first, last in light_runs(sizes[start:end], weights[start:end], 2):
            if stream.saves(start + first, start + last) >= least - 1:
                yield "small_files", start + first, start + last


def _shuffled_spans(stream: _SpannedFiles) -> Iterator[tuple[Reason, int, int]]:
    """Spans of many interleaved files, as left by another writer's shuffle."""
    for at in np.flatnonzero(stream.counts > 1).tolist():
        if stream.saves(at, at + 1) >= stream.bounds.settings.min_files - 1:
            yield "small_files", at, at + 1


def _dead_spans(
    stream: _SpannedFiles, hidden: Mapping[str, int]
) -> Iterator[tuple[Reason, int, int]]:
    """Spans with a file of which vectors hide a large share."""
    if not hidden:
        return
    messages = stream.files["messages"].to_numpy()
    dead = np.array([hidden.get(path, 0) for path in stream.files["path"].to_pylist()])
    share = stream.bounds.settings.dead_share / 100
    is_dead = (dead > 0) & (dead >= (dead + messages) * share)
    for at in np.flatnonzero(stream.of_span(is_dead.astype(np.int64))).tolist():
        yield "dead_rows", at, at + 1


def light_runs(sizes: Array, weights: Array, least: int) -> list[tuple[int, int]]:
    """The widest runs of neighbours in which no weight exceeds the total size of the run; ascending.

    >>> light_runs(np.array([1, 1, 9, 1, 1, 1]), np.array([2, 2, 18, 2, 2, 2]), least=2)
    [(0, 2), (3, 6)]

    Args:
        sizes: the size of each neighbour.
        weights: the weight of each neighbour; infinite to exclude it.
        least: the minimum number of neighbours in a run.
    """
    runs, open_ = [], [(0, len(sizes))]
    while open_:
        start, end = open_.pop()
        if end - start < least:
            continue
        heaviest = start + int(weights[start:end].argmax())
        if weights[heaviest] <= sizes[start:end].sum():
            runs.append((start, end))
        else:
            open_ += [(start, heaviest), (heaviest + 1, end)]
    return sorted(runs)


def _rank(merge: Merge) -> tuple[float, int, int]:
    return -merge.benefit, merge.partition, merge.segment
