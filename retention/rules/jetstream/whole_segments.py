"""Rows that `whole_segments` need not read: their spans certainly keep a message."""

from __future__ import annotations

import numpy as np

from retention.core.read_count import ReadCount
from retention.core.spans import Array
from retention.rules.fold import Evaluation
from retention.rules.row_verdicts import Answer
from retention.schemas.plan import REMOVED_RANGES


def unread_answers(decided: Evaluation) -> list[Answer]:
    """Answers to the questions of a pass that cannot change anything under `whole_segments`.

    Such an answer has the end of the scan, if it ends in the span, and removes nothing: the span's
    segment is kept as a whole.
    """
    may_stop = _may_stop(decided)
    return [
        Answer(
            span=int(span),
            removed=REMOVED_RANGES.empty_table(),
            stop_seq=int(decided.spans.min_seq[span]) if may_stop[span] else None,
            read=ReadCount(),
        )
        for span in np.flatnonzero(decided.ask & _needless(decided))
    ]


def _needless(decided: Evaluation) -> Array:
    """Spans that certainly keep a message, if statistics decide whether the scan ends in them."""
    most = np.zeros(len(decided.spans), dtype=np.int64)
    ends_known = np.ones(len(decided.spans), dtype=bool)
    for decision in decided.decisions:
        if decision.scan is not None:
            scan, untouched = decision.scan, most == 0
            ends_known = ~scan.may_stop | scan.stops | untouched
        most += decision.bounds()[1]
    return ends_known & (most < decided.spans.messages)


def _may_stop(decided: Evaluation) -> Array:
    if decided.scan is None:
        return np.zeros(len(decided.spans), dtype=bool)
    return decided.scan.may_stop
