"""MaxMsgsPerSubject: of each subject the highest sequences stay, as many as the limit says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.rules.spans import Array


@dataclass(frozen=True)
class Surplus:
    """What each span holds beyond the limit."""

    messages: Array
    """Surplus messages of each span, int64."""
    subjects: pa.Table
    """`span` int64, `subject` string, `surplus` int64 > 0: the lowest so many messages of that subject go."""

    def of_span(self, span: int) -> pa.Table:
        """The rows of `subjects` of one span."""
        spans = self.subjects["span"].to_numpy()
        start, end = np.searchsorted(spans, [span, span + 1])
        return self.subjects.slice(start, end - start)


def surplus(limit: int, counts: pa.Table, span_of_file: Array, spans: int) -> Surplus:
    """Find the surplus of every span from subject digests alone, exactly (NATS STREAM.UPDATE order, step 4).

    Args:
        limit: messages that may stay per subject.
        counts: `file` int64, `subject` string, `messages` int64.
        span_of_file: the span of each file.
        spans: the number of spans.
    """
    encoded = pc.dictionary_encode(counts["subject"].combine_chunks())
    codes = encoded.indices.to_numpy()
    at = span_of_file[counts["file"].to_numpy()]
    held = counts["messages"].to_numpy()
    codes, at, held = _newest_first(codes, at, held)
    gone = np.clip(_newer_and_own(codes, held) - limit, 0, held)
    per_span = np.bincount(at, weights=gone, minlength=spans).astype(np.int64)
    hit = np.flatnonzero(gone)
    hit = hit[np.argsort(at[hit], kind="stable")]
    subjects = pa.table(
        {
            "span": pa.array(at[hit], pa.int64()),
            "subject": encoded.dictionary.take(pa.array(codes[hit])),
            "surplus": pa.array(gone[hit], pa.int64()),
        }
    )
    return Surplus(per_span, subjects)


def surplus_rows(rows: pa.Table, subjects: pa.Table) -> Array:
    """Which rows of one span are surplus; a mask.

    Args:
        rows: `subject`, ascending by sequence.
        subjects: the span's rows of `Surplus.subjects`.
    """
    found = pc.index_in(rows["subject"], value_set=subjects["subject"].combine_chunks())
    codes = pc.fill_null(found, -1).to_numpy()
    order = np.argsort(codes, kind="stable")
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = _rank_in_group(codes[order])
    allowed = np.append(subjects["surplus"].to_numpy(), 0)
    return rank < allowed[codes]


def _newest_first(codes: Array, at: Array, held: Array) -> tuple[Array, Array, Array]:
    """One entry per subject and span, by subject and then from the newest span down."""
    order = np.lexsort((-at, codes))
    codes, at, held = codes[order], at[order], held[order]
    starts = np.flatnonzero((np.diff(codes, prepend=-1) != 0) | (np.diff(at, prepend=-1) != 0))
    summed = np.add.reduceat(held, starts) if len(starts) else held
    return codes[starts], at[starts], summed


def _newer_and_own(codes: Array, held: Array) -> Array:
    """Running sum of `held` within each run of equal `codes`."""
    running = np.cumsum(held)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    before = np.repeat(running[starts] - held[starts], np.diff(np.append(starts, len(codes))))
    return running - before


def _rank_in_group(codes: Array) -> Array:
    """Position of each entry within its run of equal `codes`, from 0."""
    starts = np.flatnonzero(np.diff(codes, prepend=np.iinfo(np.int32).min))
    return np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
