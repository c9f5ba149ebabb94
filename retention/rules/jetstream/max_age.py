"""MaxAge: a scan from the lowest sequence that removes until it meets the first message young enough to stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.core.spans import Array, Spans
from schemas.messages import NEVER


@dataclass(frozen=True)
class AgeScan:
    """What metadata says about the scan; masks with one entry a span.

    A message goes if `ts_ns <= cutoff_ns` and its deadline is not `NEVER`; the scan ends at the first message with
    `ts_ns > cutoff_ns` that the rules before it left (NATS STREAM.UPDATE order, step 5a; ADR-43 for `never`).
    """

    cutoff_ns: int
    reach: int
    """No row of this span or a later one is reached, whatever rows say."""
    whole: Array
    """Every message of the span that other rules leave goes, if the scan reaches it."""
    ask: Array
    """Rows decide."""


def age_scan(cutoff_ns: int, spans: Spans, gone: Array, touched: Array) -> AgeScan:
    """Plan the scan.

    Args:
        cutoff_ns: `as_of - max_age`, nanoseconds since the epoch.
        spans: the stream.
        gone: spans that other rules take whole.
        touched: spans that other rules take some rows from.
    """
    has_young = (spans.max_ts_ns > cutoff_ns) & ~gone
    has_old = (spans.min_ts_ns <= cutoff_ns) & ~gone
    stops = np.flatnonzero(has_young & ~touched)
    reach = int(stops[0]) + 1 if len(stops) else len(spans)
    reached = (np.arange(len(spans)) < reach) & ~gone
    whole = reached & ~has_young & (spans.never == 0)
    stepped_over = ~has_young & (spans.never == spans.messages)
    ask = reached & ~whole & ((has_old & ~stepped_over) | touched)
    return AgeScan(cutoff_ns, reach, whole, ask)


def first_young(ts_ns: Array, left: Array, cutoff_ns: int) -> int | None:
    """Row number of the first message that ends the scan, among those that are `left`; None if there is none."""
    young = np.flatnonzero(left & (ts_ns > cutoff_ns))
    return int(young[0]) if len(young) else None


def expires(deadline_ns: Array, until: int | None) -> Array:
    """Which rows the scan removes, given that it reaches the first of them; a mask.

    Args:
        deadline_ns: each message's deadline, 0 where there is none, in sequence order.
        until: the row that ends the scan; None: it goes on past the last row.
    """
    rows = len(deadline_ns)
    passed = np.arange(rows) < (rows if until is None else until)
    return passed & (deadline_ns != NEVER)
