"""MaxMsgsPerSubject: of each subject the highest sequences stay, as many as the limit says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.rules.spans import Array


@dataclass(frozen=True)
class Share:
    """What the limit lets stay of one span, told by the shorter of two lists of subjects."""

    subjects: pa.Array
    """Subjects of the span, string."""
    counts: Array
    """For each of them: how many of its lowest messages go, or of its highest stay."""
    stay: bool
    """Whether `counts` says what stays: all messages of other subjects go. Otherwise they stay."""


@dataclass(frozen=True)
class _Held:
    """What one span holds of each of its subjects."""

    codes: Array
    messages: Array
    beyond: Array
    """How many of them are beyond the limit."""


@dataclass(frozen=True)
class Surplus:
    """What each span holds beyond the limit."""

    messages: Array
    """Surplus messages of each span, int64."""
    names: pa.Array
    """Every subject of the stream; `_Held.codes` are places in it."""
    held: tuple[_Held, ...]

    def of_span(self, span: int) -> Share:
        """What the limit does to one span."""
        held = self.held[span]
        loses, keeps = held.beyond > 0, held.messages > held.beyond
        stay = int(keeps.sum()) < int(loses.sum())
        listed = keeps if stay else loses
        counts = (held.messages - held.beyond if stay else held.beyond)[listed]
        return Share(self.names.take(pa.array(held.codes[listed])), counts, stay)


def surplus(limit: int, counts: pa.Table, span_of_file: Array, spans: int) -> Surplus:
    """Find the surplus of every span from subject digests alone, exactly (NATS STREAM.UPDATE order, step 4).

    Args:
        limit: messages that may stay per subject.
        counts: `file` int64, ascending; `subject` string, once a file; `messages` int64.
        span_of_file: the span of each file.
        spans: the number of spans.
    """
    encoded = pc.dictionary_encode(counts["subject"].combine_chunks())
    newer = np.zeros(len(encoded.dictionary), dtype=np.int64)
    found = []
    for codes, messages in _newest_first(encoded.indices.to_numpy(), counts, span_of_file, spans):
        beyond = np.clip(newer[codes] + messages - limit, 0, messages)
        newer[codes] += messages
        found.append(_Held(codes, messages, beyond))
    held = tuple(reversed(found))
    totals = np.array([int(one.beyond.sum()) for one in held], dtype=np.int64)
    return Surplus(totals, encoded.dictionary, held)


def surplus_rows(rows: pa.Table, share: Share) -> Array:
    """Which rows of one span are beyond the limit; a mask.

    Args:
        rows: `subject`, ascending by sequence.
        share: what the limit does to the span.
    """
    codes = pc.fill_null(pc.index_in(rows["subject"], value_set=share.subjects), -1).to_numpy()
    listed = np.append(share.counts, 0)
    if share.stay:
        return _rank(codes[::-1])[::-1] >= listed[codes]
    return _rank(codes) < listed[codes]


def _newest_first(
    codes: Array, counts: pa.Table, span_of_file: Array, spans: int
) -> Iterator[tuple[Array, Array]]:
    """The subjects of each span, once each, and how many messages they have in it; from the newest span down."""
    at = span_of_file[counts["file"].to_numpy()]
    messages = counts["messages"].to_numpy()
    starts = np.searchsorted(at, np.arange(spans + 1))
    several = np.bincount(span_of_file, minlength=spans) > 1
    for span in reversed(range(spans)):
        part = slice(starts[span], starts[span + 1])
        if several[span]:
            own, place = np.unique(codes[part], return_inverse=True)
            yield own, np.bincount(place, weights=messages[part]).astype(np.int64)
        else:
            yield codes[part], messages[part]


def _rank(codes: Array) -> Array:
    """How many equal `codes` come before each entry."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=np.iinfo(np.int32).min))
    in_group = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = in_group
    return rank
