"""The removal of what a replayed server does not hold, as verdicts on the spans of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention import rules
from retention.core.seq_ranges import in_ranges, merged_ranges
from retention.core.spans import Array, Spans
from retention.rules.replay.fates import BY_RULE, DUPLICATE, REFUSED
from retention.rules.rule import RowRule
from retention.rules.verdicts import Verdicts

_OF_FATE = {REFUSED: rules.REFUSED, DUPLICATE: rules.DUPLICATE}


@dataclass(frozen=True)
class SeqRows(RowRule):
    """The rows of one span with some sequences."""

    rule: str
    ranges: Array
    """Ascending, disjoint, inclusive ranges; shape (n, 2)."""

    def takes(self, rows: pa.Table) -> Array:
        """A mask of these rows."""
        return in_ranges(rows["seq"].to_numpy(), self.ranges)


def rule_of(fate: str, reason: str | None) -> str:
    """The rule that removes a message with a fate and its reason (`FATES`)."""
    return _OF_FATE.get(fate) or str(reason)


def verdicts_of(spans: Spans, gone: pa.Table) -> Iterator[Verdicts]:
    """The verdicts of each rule of a server.

    Args:
        spans: the stream.
        gone: the messages to remove, shape `GONE`.
    """
    for reason in BY_RULE:
        removed = pc.fill_null(pc.equal(gone["reason"], reason), False)  # noqa: FBT003
        yield _verdicts(spans, reason, gone["seq"].filter(removed).to_numpy())
    for fate, rule in _OF_FATE.items():
        yield _verdicts(spans, rule, gone["seq"].filter(pc.equal(gone["fate"], fate)).to_numpy())


def _verdicts(spans: Spans, rule: str, seqs: Array) -> Verdicts:
    before = np.searchsorted(seqs, spans.min_seq, side="left")
    until = np.searchsorted(seqs, spans.max_seq, side="right")
    counts = until - before
    whole = (counts == spans.messages) & (counts > 0)
    parts = {
        span: SeqRows(rule, _ranges(seqs[before[span] : until[span]]))
        for span in np.flatnonzero((counts > 0) & ~whole).tolist()
    }
    return Verdicts(rule, whole, parts)


def _ranges(seqs: Array) -> Array:
    return merged_ranges(np.stack([seqs, seqs], axis=1))
