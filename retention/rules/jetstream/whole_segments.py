"""Rows that need not be read when only whole segments go: of their spans something stays, whatever the rows say."""

from __future__ import annotations

import numpy as np

from retention.core.inventory import ReadCount
from retention.core.spans import Array
from retention.rules.jetstream.evaluate import OnePass
from retention.rules.jetstream.msg_ttl import most_due
from retention.rules.row_verdicts import Answer
from schemas.plan import REMOVED_RANGES


def unread(decided: OnePass) -> list[Answer]:
    """Answers to those questions of a pass whose rows would change nothing under `whole_segments`.

    Such an answer says where the age scan ends, if it ends in the span, and that nothing goes: the span's segment
    stays as a whole.
    """
    young = _holds_young(decided)
    return [
        Answer(
            span=int(span),
            removed=REMOVED_RANGES.empty_table(),
            stop_seq=int(decided.spans.min_seq[span]) if young[span] else None,
            read=ReadCount(),
        )
        for span in np.flatnonzero(decided.ask & _needless(decided, young))
    ]


def _needless(decided: OnePass, young: Array) -> Array:
    """Spans that keep something, and of which metadata tells whether the age scan ends in them."""
    spans = decided.spans
    by_head, by_subject = _most_by_head(decided), _by_subject(decided)
    untouched = by_head + by_subject == 0
    by_age = np.zeros(len(spans), dtype=np.int64)
    tells = np.ones(len(spans), dtype=bool)
    if decided.age is not None:
        has_old = spans.min_ts_ns <= decided.age.cutoff_ns
        reached = np.arange(len(spans)) < decided.age.reach
        stay = np.maximum(spans.never, young.astype(np.int64))
        by_age = np.where(has_old & reached, spans.messages - stay, 0)
        tells = ~young | ~has_old | untouched
    by_ttl = 0 if decided.ttl is None else most_due(decided.ttl, spans)
    return tells & (by_head + by_subject + by_age + by_ttl < spans.messages)


def _holds_young(decided: OnePass) -> Array:
    if decided.age is None:
        return np.zeros(len(decided.spans), dtype=bool)
    return decided.spans.max_ts_ns > decided.age.cutoff_ns


def _most_by_head(decided: OnePass) -> Array:
    """The most messages that head trims can take of each span that they do not take whole."""
    most = np.zeros(len(decided.spans), dtype=np.int64)
    counted, weighed = decided.by_messages, decided.by_bytes
    if counted.rest:
        most[counted.whole] = counted.rest
    if weighed.rest:
        most[weighed.whole] = decided.spans.messages[weighed.whole]
    return most


def _by_subject(decided: OnePass) -> Array:
    return (
        np.zeros(len(decided.spans), dtype=np.int64)
        if decided.surplus is None
        else decided.surplus.messages
    )
