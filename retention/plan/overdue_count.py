"""The count of overdue messages, from statistics and from rows already read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.spans import Array
from retention.plan.overdue import Overdue
from retention.rules.fold import Evaluation
from retention.rules.jetstream.max_age_each import MaxAgeEach
from retention.rules.row_verdicts import STAYS, Answer, settled, stop_of
from retention.rules.rule import NO_FACTS, PriorRemovals, Scan


def overdue_of(
    files: pa.Table,
    policy: Policy,
    as_of_ns: int,
    decided: Evaluation,
    answers: Sequence[Answer] = (),
) -> Overdue | None:
    """Count the kept messages older than `max_age`, from statistics and from rows already read.

    Args:
        files: the files of the pass's spans; shape `FILE_STATS`.
        policy: the stream's rules.
        as_of_ns: the pass's instant.
        decided: the pass.
        answers: the rows' answers to its questions; missing answers widen the bounds.

    Returns:
        None if no message is overdue.
    """
    each = MaxAgeEach.of(replace(policy, expiry="each"), as_of_ns, NO_FACTS)
    scan = decided.scan
    if each is None or scan is None or not len(decided.spans):
        return None
    first, last = _ends(decided, scan, answers)
    if (decided.spans.min_ts_ns[first:] > each.cutoff_ns).all():
        return None
    nowhere = np.zeros(len(decided.spans), dtype=bool)
    nothing_before = PriorRemovals(nowhere, nowhere, nowhere)
    least, most = _left_by_others(decided, *each.decide(decided.spans, nothing_before).bounds())
    numbers = np.arange(len(decided.spans))
    # Held messages are kept for another reason.
    is_certain = not policy.rests_on_consumers or policy.hold is None
    least, most = (
        np.where((numbers > last) & is_certain, least, 0),
        np.where(numbers >= first, most, 0),
    )
    for answer in answers:
        if answer.skipped is not None:
            by_rows = 0 if answer.span < last else answer.skipped
            by_rows += _not_reached(answer) if answer.span > last else 0
            least[answer.span] = most[answer.span] = by_rows
    if not most.any():
        return None
    behind = _behind(files, decided, scan, answers) if first == last else (None, None)
    return Overdue(int(least.sum()), int(most.sum()), *behind)


def _ends(decided: Evaluation, scan: Scan, answers: Sequence[Answer]) -> tuple[int, int]:
    """The first and the last span in which the scan can end; the number of spans means no end."""
    count = len(decided.spans)
    by_statistics = scan.reach - 1 if scan.may_stop[scan.reach - 1] else count
    stopped_at = stop_of(answers)
    last = by_statistics if stopped_at is None else min(stopped_at, by_statistics)
    unknown = decided.ask & scan.may_stop
    unknown[[answer.span for answer in answers]] = False
    open_ends = np.flatnonzero(unknown)
    return min(int(open_ends[0]), last) if len(open_ends) else last, last


def _left_by_others(decided: Evaluation, least: Array, most: Array) -> tuple[Array, Array]:
    """Bounds of the messages of each span that no rule except the scan removes."""
    for decision in decided.decisions:
        if decision.scan is None:
            fewest, greatest = decision.bounds()
            least = np.where(decision.whole, 0, np.maximum(least - greatest, 0))
            most = np.where(decision.whole, 0, np.minimum(most, decided.spans.messages - fewest))
    return least, most


def _not_reached(answer: Answer) -> int:
    """Messages of a span that the scan would remove if it reached the span."""
    ranges = answer.counts
    stays = settled(ranges["rule"].to_numpy(), reached=False) == STAYS
    return int(ranges["messages"].to_numpy()[stays].sum())


def _behind(
    files: pa.Table, decided: Evaluation, scan: Scan, answers: Sequence[Answer]
) -> tuple[int | None, int | None]:
    """The message at which the scan ends, and its time; None: unknown."""
    stopped_at = stop_of(answers)
    for answer in answers:
        if answer.span == stopped_at and answer.stop_ts_ns is not None:
            return answer.stop_seq, answer.stop_ts_ns
    span = scan.reach - 1 if stopped_at is None else stopped_at
    if not scan.stops[span]:
        return None, None
    # Every message of the span is young, so the scan ends at the first one.
    seq = int(decided.spans.min_seq[span])
    [time, *_] = files.filter(pc.equal(files["min_seq"], seq))["first_ts_ns"].to_pylist()
    return seq, time
