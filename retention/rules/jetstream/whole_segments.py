"""Rows that need not be read when only whole segments go: of their spans something stays, whatever the rows say."""

from __future__ import annotations

import numpy as np

from retention.core.inventory import ReadCount
from retention.core.spans import Array
from retention.rules.fold import Evaluation
from retention.rules.row_verdicts import Answer
from schemas.plan import REMOVED_RANGES


def unread_answers(decided: Evaluation) -> list[Answer]:
    """Answers to those questions of a pass whose rows would change nothing under `whole_segments`.

    Such an answer says where the scan ends, if it ends in the span, and that nothing goes: the span's segment
    stays as a whole.
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
    """Spans that keep something, and of which statistics tell whether the scan ends in them."""
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
