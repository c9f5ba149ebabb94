"""Consumer protection: messages that limits would remove, kept while a consumer needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from retention.core.spans import Array, Spans
from retention.rules.jetstream.interest import Interest, encoded

AT_ANY_AGE = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Protection:
    """Some consumers' needs of a stream, and bounds of their protection: a veto (docs/semantics/consumers-hold.md)."""

    interests: tuple[Interest, ...]
    after_ns: int = AT_ANY_AGE
    """The instant by which stored messages are no longer held, nanoseconds since the epoch."""
    from_seq: int = 0
    """Messages below this sequence are no longer held."""
    columns: ClassVar[tuple[str, ...]] = ("subject", "ts_ns")

    def covers(self, rows: pa.Table) -> Array:
        """A mask of the messages held for each consumer; shape (consumers, rows).

        Args:
            rows: `seq`, `subject` and `ts_ns`.
        """
        seqs, subjects = rows["seq"].to_numpy(), encoded(rows["subject"])
        within = (seqs >= self.from_seq) & (rows["ts_ns"].to_numpy() > self.after_ns)
        masks = [
            interest.matches(subjects.dictionary)[subjects.indices.to_numpy()]
            & interest.needs(seqs)
            & within
            for interest in self.interests
        ]
        return np.array(masks, dtype=bool).reshape(len(masks), len(seqs))

    def some(self, spans: Spans) -> Array:
        """A mask of spans with messages that may be held."""
        needed = np.zeros(len(spans), dtype=bool)
        for interest in self.interests:
            needed |= ~interest.needs_none(spans)
        return needed & (spans.max_seq >= self.from_seq) & (spans.max_ts_ns > self.after_ns)

    def whole(self, spans: Spans) -> Array:
        """A mask of completely held spans, with the consumers known from metadata."""
        whole, known = np.zeros(len(spans), dtype=bool), np.ones(len(spans), dtype=bool)
        for needed, interest in zip(self.all_for(spans), self.interests, strict=True):
            whole |= needed
            known &= needed | interest.needs_none(spans)
        in_bounds = (spans.min_seq >= self.from_seq) & (spans.min_ts_ns > self.after_ns)
        return whole & known & in_bounds

    def all_for(self, spans: Spans) -> Array:
        """A mask of spans in which a consumer certainly needs every message; shape (consumers, spans)."""
        masks = [interest.needs_all(spans) & (not interest.filters) for interest in self.interests]
        return np.array(masks, dtype=bool).reshape(len(masks), len(spans))

    def within(self, spans: Spans, span: int) -> Protection:
        """The protection reduced to the messages of one span."""
        first, last = int(spans.min_seq[span]), int(spans.max_seq[span])
        return replace(
            self, interests=tuple(interest.within(first, last) for interest in self.interests)
        )
