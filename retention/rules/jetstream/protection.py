"""What consumers protect: messages that limits would take, and that stay while somebody still needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from retention.core.spans import Array, Spans
from retention.rules.jetstream.interest import Interest, encoded

AT_ANY_AGE = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Protection:
    """What some consumers need of a stream, and within which bounds it is held (docs/semantics/consumers-hold.md)."""

    interests: tuple[Interest, ...]
    after_ns: int = AT_ANY_AGE
    """What was stored by then is held no longer, nanoseconds since the epoch."""
    from_seq: int = 0
    """What lies below is held no longer."""

    def covers(self, rows: pa.Table) -> Array:
        """Which messages are held for whom; a mask of shape (consumers, rows).

        Args:
            rows: `seq`, `subject` and `ts_ns`.
        """
        seqs, subjects = rows["seq"].to_numpy(), encoded(rows["subject"])
        within = (seqs >= self.from_seq) & (rows["ts_ns"].to_numpy() > self.after_ns)
        masks = [
            one.matches(subjects.dictionary)[subjects.indices.to_numpy()] & one.needs(seqs) & within
            for one in self.interests
        ]
        return np.array(masks, dtype=bool).reshape(len(masks), len(seqs))

    def some(self, spans: Spans) -> Array:
        """Spans of which messages may be held; a mask."""
        needed = np.zeros(len(spans), dtype=bool)
        for one in self.interests:
            needed |= ~one.needs_none(spans)
        return needed & (spans.max_seq >= self.from_seq) & (spans.max_ts_ns > self.after_ns)

    def whole(self, spans: Spans) -> Array:
        """Spans of which metadata tells for whom everything is held; a mask."""
        whole, told = np.zeros(len(spans), dtype=bool), np.ones(len(spans), dtype=bool)
        for mine, one in zip(self.all_for(spans), self.interests, strict=True):
            whole |= mine
            told &= mine | one.needs_none(spans)
        in_bounds = (spans.min_seq >= self.from_seq) & (spans.min_ts_ns > self.after_ns)
        return whole & told & in_bounds

    def all_for(self, spans: Spans) -> Array:
        """Spans of which a consumer surely needs every message; a mask of shape (consumers, spans)."""
        masks = [one.needs_all(spans) & (not one.filters) for one in self.interests]
        return np.array(masks, dtype=bool).reshape(len(masks), len(spans))

    def within(self, first: int, last: int) -> Protection:
        """The same for messages between two sequences, both inclusive, and small."""
        return replace(self, interests=tuple(one.within(first, last) for one in self.interests))
