"""Per-message TTL: a message whose deadline has passed goes, wherever it lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.core.spans import Array, Spans


@dataclass(frozen=True)
class TtlScan:
    """What metadata says about deadlines; masks with one entry a span.

    A message goes if it has a deadline and `deadline_ns <= due_ns` (NATS STREAM.UPDATE order, step 5b; ADR-43).
    """

    due_ns: int
    whole: Array
    """Every message of the span that other rules leave goes."""
    some: Array
    """A deadline has passed, but not every message goes: rows decide."""


def ttl_scan(due_ns: int, spans: Spans) -> TtlScan:
    """Plan the scan.

    Args:
        due_ns: the pass's instant, nanoseconds since the epoch.
        spans: the stream.
    """
    any_due = (spans.deadlines > 0) & (spans.min_deadline_ns <= due_ns)
    whole = any_due & (spans.deadlines == spans.messages) & (spans.max_deadline_ns <= due_ns)
    return TtlScan(due_ns, whole, any_due & ~whole)


def passed(deadline_ns: Array, has_deadline: Array, due_ns: int) -> Array:
    """Which rows' deadlines have passed; a mask.

    Args:
        deadline_ns: `NEVER` for never, which lies after every instant.
        has_deadline: false where a message has no TTL.
        due_ns: the pass's instant.
    """
    return has_deadline & (deadline_ns <= due_ns)


def most_due(scan: TtlScan, spans: Spans) -> Array:
    """The most messages of each span whose deadlines can have passed."""
    return np.where(scan.whole | scan.some, spans.deadlines, 0)
