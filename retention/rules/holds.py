"""Legal holds: messages that a person keeps from every rule and request, by subject, sequence and time; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from retention.core.seq_ranges import in_ranges
from retention.core.spans import Array, Spans
from retention.core.subjects import matching_mask
from retention.rules.row_verdicts import STAYS, settled, stop_of
from retention.schemas.bounds import MAX_SEQ

if TYPE_CHECKING:
    from retention.rules.fold import Vetoed

FOREVER_NS = int(np.iinfo(np.int64).max)
SINCE_EVER_NS = int(np.iinfo(np.int64).min)
EVERY_SEQ = np.array([[0, MAX_SEQ]])
"""The ranges of a legal hold that does not name sequences."""


class Bounds(Protocol):
    """The bounds of spans or files, one entry for each."""

    @property
    def min_seq(self) -> Array:
        """The lowest sequences."""

    @property
    def max_seq(self) -> Array:
        """The highest sequences."""

    @property
    def min_ts_ns(self) -> Array:
        """The earliest times, nanoseconds since the epoch."""

    @property
    def max_ts_ns(self) -> Array:
        """The latest times."""


@dataclass(frozen=True)
class HeldMessages:
    """The messages that one legal hold covers: those that match all of its fields."""

    id: str
    subject: str | None
    """A subject filter; None: any subject."""
    ranges: Array
    """Ascending, disjoint ranges of sequences, both ends inclusive; shape (n, 2)."""
    from_ns: int = SINCE_EVER_NS
    to_ns: int = FOREVER_NS
    """The instants at and before which messages were stored, nanoseconds since the epoch; the second is exclusive."""

    def some(self, spans: Bounds) -> Array:
        """A mask of spans that may have a covered message."""
        after = np.searchsorted(self.ranges[:, 1], spans.min_seq)
        begins = np.append(self.ranges[:, 0], MAX_SEQ + 1)[after]
        return (
            (begins <= spans.max_seq)
            & (spans.max_ts_ns >= self.from_ns)
            & (spans.min_ts_ns < self.to_ns)
        )

    def whole(self, spans: Spans) -> Array:
        """A mask of spans with only covered messages."""
        if self.subject is not None or not len(self.ranges):
            return np.zeros(len(spans), dtype=bool)
        at = np.searchsorted(self.ranges[:, 0], spans.min_seq, side="right") - 1
        inside = (at >= 0) & (spans.max_seq <= self.ranges[np.maximum(at, 0), 1])
        return inside & (spans.min_ts_ns >= self.from_ns) & (spans.max_ts_ns < self.to_ns)

    def covers(self, rows: pa.Table) -> Array:
        """A mask of the covered rows.

        Args:
            rows: `seq`, `subject` and `ts_ns`.
        """
        times = rows["ts_ns"].to_numpy()
        mask = in_ranges(rows["seq"].to_numpy(), self.ranges)
        mask &= (times >= self.from_ns) & (times < self.to_ns)
        if self.subject is None or not mask.any():
            return mask
        subjects = rows["subject"].cast(pa.string())
        return mask & np.asarray(matching_mask(subjects, (self.subject,)))

    def between(self, first: int, last: int) -> HeldMessages:
        """The part that covers sequences from `first` to `last`."""
        begin = np.searchsorted(self.ranges[:, 1], first)
        end = np.searchsorted(self.ranges[:, 0], last, side="right")
        return replace(self, ranges=self.ranges[begin:end])


@dataclass(frozen=True)
class HoldVeto:
    """The veto of legal holds, one reason each."""

    holds: tuple[HeldMessages, ...]
    columns: ClassVar[tuple[str, ...]] = ("subject", "ts_ns")

    def covers(self, rows: pa.Table) -> Array:
        """A mask of the rows that each legal hold covers; shape (holds, rows)."""
        masks = [hold.covers(rows) for hold in self.holds]
        return np.array(masks, dtype=bool).reshape(len(masks), rows.num_rows)

    def some(self, spans: Spans) -> Array:
        """A mask of spans that may have a held message."""
        return np.any([hold.some(spans) for hold in self.holds], axis=0)

    def whole(self, spans: Spans) -> Array:
        """A mask of completely held spans, in which each legal hold covers every message or none."""
        whole, known = np.zeros(len(spans), dtype=bool), np.ones(len(spans), dtype=bool)
        for hold in self.holds:
            all_of_it = hold.whole(spans)
            whole |= all_of_it
            known &= all_of_it | ~hold.some(spans)
        return whole & known

    def within(self, spans: Spans, span: int) -> HoldVeto:
        """The veto reduced to the messages of one span."""
        first, last = int(spans.min_seq[span]), int(spans.max_seq[span])
        return HoldVeto(tuple(hold.between(first, last) for hold in self.holds))


@dataclass(frozen=True)
class LegalHolds:
    """The legal holds in effect on a stream, and the number of edits by which a commit recognizes a change."""

    holds: tuple[HeldMessages, ...] = ()
    edits: int = 0
    """The number of records of legal holds that the log counted when they were read."""

    @property
    def vetoes(self) -> tuple[HoldVeto, ...]:
        """The veto, if any legal hold is in effect."""
        return (HoldVeto(self.holds),) if self.holds else ()

    def some(self, spans: Spans) -> Array | None:
        """A mask of spans that may have a held message; None: no legal hold is in effect."""
        return HoldVeto(self.holds).some(spans) if self.holds else None

    @property
    def ids(self) -> str:
        """The ids of the legal holds, for sentences."""
        return ", ".join(hold.id for hold in self.holds)

    def may_cover(self, bounds: Bounds) -> bool:
        """Whether a file within some bounds may have a held message."""
        return any(hold.some(bounds).any() for hold in self.holds)

    def kept_whole(self, spans: Spans, kept: Array) -> Array:
        """The messages that each legal hold keeps in spans of `HoldVeto.whole`, a mask; shape (holds,)."""
        counts = [spans.messages[kept & hold.whole(spans)].sum() for hold in self.holds]
        return np.array(counts, dtype=np.int64)

    def kept_by(self, vetoed: Vetoed, released: Array | int = 0) -> Mapping[str, int] | None:
        """Legal hold → the messages that it keeps from the rules of a decision; None: no legal hold is in effect.

        A message under several legal holds counts for each.

        Args:
            vetoed: the decision, of which these legal holds were the first veto.
            released: the messages that each keeps from the release by consumers; shape (holds,).
        """
        if not self.holds:
            return None
        decided, stopped_at = vetoed.decided, stop_of(vetoed.answers)
        spans, whole = decided.spans, np.zeros(len(decided.spans), dtype=bool)
        for decision in decided.decisions:
            whole |= decision.takes_whole(stopped_at)
        whole &= decided.held & ~decided.ask
        kept = self.kept_whole(spans, whole) + released
        for answer in vetoed.answers:
            reached = stopped_at is None or answer.span <= stopped_at
            reason, verdicts = (answer.held[name].to_numpy() for name in ("consumer", "rule"))
            by_hold = (
                (reason >= 0) & (reason < len(kept)) & (settled(verdicts, reached=reached) != STAYS)
            )
            np.add.at(kept, reason[by_hold], answer.held["messages"].to_numpy()[by_hold])
        return {hold.id: int(count) for hold, count in zip(self.holds, kept, strict=True)}


NO_HOLDS = LegalHolds()
