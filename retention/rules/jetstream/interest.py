"""Interest and work-queue retention: release of messages that no consumer needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Unmatched
from retention.core.spans import Array, Spans
from retention.core.subjects import matching_mask

_NO_SEQS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Interest:
    """One consumer's remaining needs of a stream (the server's `needAck`; docs/semantics/consumers-release.md)."""

    consumer: str
    ack_floor: int
    """The stream sequence up to which all messages are settled."""
    delivered: int
    """The stream sequence of the last delivery."""
    filters: tuple[str, ...] = ()
    """Empty: every message."""
    explicit: bool = True
    """Whether each message is acknowledged individually; otherwise all messages above the floor are needed."""
    pending: Array = field(default_factory=lambda: _NO_SEQS)
    """Sequences delivered but not settled, ascending."""
    redelivered: Array = field(default_factory=lambda: _NO_SEQS)
    """Sequences delivered more than once but not settled, including abandoned ones, ascending."""

    def matches(self, subjects: pa.Array | pa.ChunkedArray) -> Array:
        """A mask of the subjects that match the consumer's filters."""
        if not self.filters:
            return np.ones(len(subjects), dtype=bool)
        return matching_mask(subjects, self.filters).to_numpy(zero_copy_only=False)

    def needs(self, seqs: Array) -> Array:
        """A mask of the messages that the consumer still needs, if they match its filters."""
        needed = seqs > self.ack_floor
        if self.explicit:
            needed &= (seqs > self.delivered) | np.isin(seqs, self.pending)
        return needed | np.isin(seqs, self.redelivered)

    def needs_all(self, spans: Spans) -> Array:
        """A mask of spans in which the consumer needs every matching message."""
        passed = max(self.ack_floor, self.delivered) if self.explicit else self.ack_floor
        return spans.min_seq > passed

    def needs_none(self, spans: Spans) -> Array:
        """A mask of spans in which the consumer needs no message, for any filters."""
        settled = spans.max_seq <= self.ack_floor
        if self.explicit:
            above = self.pending[self.pending > self.ack_floor]
            settled |= (spans.max_seq <= self.delivered) & ~_hold_some(spans, above)
        return settled & ~_hold_some(spans, self.redelivered)

    def within(self, first: int, last: int) -> Interest:
        """The interest reduced to messages between two sequences, both inclusive: it contains no other sequence."""
        return replace(
            self,
            pending=_between(self.pending, first, last),
            redelivered=_between(self.redelivered, first, last),
        )


@dataclass(frozen=True)
class Release:
    """The release by consumers, per span from metadata; spans in neither mask lose nothing."""

    whole: Array
    """A mask of spans released completely."""
    ask: Array
    """A mask of spans that need their rows."""


def release(spans: Spans, interests: Sequence[Interest], unmatched: Unmatched) -> Release:
    """Decide from sequences alone; subject digests may decide some of the open spans later.

    A stream without consumers keeps everything.

    Args:
        spans: the stream.
        interests: of every consumer.
        unmatched: the fate of messages that no filter matches.
    """
    nobody = np.zeros(len(spans), dtype=bool)
    if not interests:
        return Release(whole=nobody, ask=nobody)
    all_wanted = any(not interest.filters for interest in interests)
    needs_all, needs_none, kept = ~nobody, ~nobody, nobody
    for interest in interests:
        whole = interest.needs_all(spans)
        needs_all = needs_all & whole
        needs_none = needs_none & interest.needs_none(spans)
        kept = kept | (whole & (not interest.filters))
    if all_wanted or unmatched == "keep":
        kept = kept | needs_all
    gone = needs_none & (all_wanted or unmatched == "remove")
    return Release(whole=gone, ask=~gone & ~kept)


def refined(
    undecided: Release,
    spans: Spans,
    interests: Sequence[Interest],
    unmatched: Unmatched,
    counts: pa.Table,
) -> Release:
    """Decide open spans from subject digests, if all messages of each subject have the same fate.

    Args:
        undecided: the decision from sequences alone, with open spans.
        spans: the stream.
        interests: of every consumer.
        unmatched: the fate of messages that no filter matches.
        counts: the digests of all files of some open spans; `file`, a row number of the inventory, and `subject`.

    Returns:
        The decision, with those spans decided.
    """
    span = spans.span_of_file[counts["file"].to_numpy()]
    subjects = encoded(counts["subject"])
    wanted = needed = open_ = np.zeros(len(span), dtype=bool)
    for interest in interests:
        matches = interest.matches(subjects.dictionary)[subjects.indices.to_numpy()]
        wanted = wanted | matches
        needed = needed | (matches & interest.needs_all(spans)[span])
        open_ = open_ | (matches & ~interest.needs_none(spans)[span])
    goes = ~open_ & (wanted | (unmatched == "remove"))
    stays = needed | (~wanted & (unmatched == "keep"))
    all_go, all_stay = (_all_of_span(each, span, len(spans)) for each in (goes, stays))
    return Release(whole=undecided.whole | all_go, ask=undecided.ask & ~all_go & ~all_stay)


def released_rows(rows: pa.Table, interests: Sequence[Interest], unmatched: Unmatched) -> Array:
    """A mask of the rows that no consumer needs any more.

    Args:
        rows: `seq` and `subject`.
        interests: of every consumer.
        unmatched: the fate of messages that no filter matches.
    """
    seqs, subjects = rows["seq"].to_numpy(), encoded(rows["subject"])
    wanted = needed = np.zeros(len(seqs), dtype=bool)
    for interest in interests:
        matches = interest.matches(subjects.dictionary)[subjects.indices.to_numpy()]
        wanted = wanted | matches
        needed = needed | (matches & interest.needs(seqs))
    return ~needed & (wanted | (unmatched == "remove" and len(interests) > 0))


def encoded(subjects: pa.ChunkedArray) -> pa.DictionaryArray:
    """Dictionary-encode subjects."""
    return pc.dictionary_encode(subjects.combine_chunks())


def _between(seqs: Array, first: int, last: int) -> Array:
    return seqs[np.searchsorted(seqs, first) : np.searchsorted(seqs, last, side="right")]


def _hold_some(spans: Spans, seqs: Array) -> Array:
    """A mask of spans with at least one of these ascending sequences in their range."""
    first = np.searchsorted(seqs, spans.min_seq, side="left")
    return first < np.searchsorted(seqs, spans.max_seq, side="right")


def _all_of_span(each: Array, span: Array, spans: int) -> Array:
    """A mask of spans with entries that are all true."""
    entries = np.bincount(span, minlength=spans)
    return (entries > 0) & (np.bincount(span[each], minlength=spans) == entries)
