"""Spans in which only deadlines have a say, decided file by file: no order of sequences matters to a deadline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from retention.core.policy import Policy
from retention.core.spans import Array, joined, spans_of
from retention.rules.fold import Evaluation
from retention.rules.jetstream.evaluate import evaluate
from retention.rules.rule import RowRule, SubjectExcess


@dataclass(frozen=True)
class RegroupedExcess:
    """The excess of each span over the limit per subject, once spans without surplus are divided."""

    excess: SubjectExcess
    number: Array
    """For each span, its number among those that `excess` speaks of."""

    @property
    def messages(self) -> Array:
        """Surplus messages of each span, int64."""
        return self.excess.messages[self.number]

    def of_span(self, span: int) -> RowRule:
        """The limit's rule for the rows of one span, or where it is kept."""
        return self.excess.of_span(int(self.number[span]))


def split_by_file(
    decided: Evaluation, files: pa.Table, policy: Policy, as_of_ns: int
) -> Evaluation:
    """Decide a pass again with each file by itself where that changes nothing but what has to be read.

    A file of which every deadline has passed goes whole, one of which none has stays, and only the others are asked.

    Args:
        decided: the pass, decided by spans.
        files: the inventory's, shape `FILE_STATS`.
        policy: the one that `decided` was decided by.
        as_of_ns: likewise.
    """
    apart = _divisible(decided)
    if not apart.any():
        return decided
    spans = spans_of(files, apart[decided.spans.span_of_file])
    number = decided.spans.span_of_file[spans.first_file[:-1]]
    subjects = decided.subjects
    if subjects.excess is not None:
        subjects = replace(subjects, excess=RegroupedExcess(subjects.excess, number))
    return evaluate(spans, policy, as_of_ns, subjects)


def decide_at(
    decided: Evaluation, files: pa.Table, policy: Policy, instants: Iterable[int]
) -> Iterator[Evaluation]:
    """Decide the same stream at other instants, at which the scan may come to what `decided` has file by file.

    Args:
        decided: a pass at any instant.
        files: the inventory's, shape `FILE_STATS`.
        policy: what lets messages go at the other instants, with the same limit per subject.
        instants: the other instants, nanoseconds since the epoch.
    """
    spans, subjects = joined(decided.spans), decided.subjects
    if isinstance(subjects.excess, RegroupedExcess):
        subjects = replace(subjects, excess=subjects.excess.excess)
    for as_of_ns in instants:
        whole = evaluate(spans, policy, as_of_ns, subjects)
        yield split_by_file(whole, files, policy, as_of_ns)


def _divisible(decided: Evaluation) -> Array:
    """Spans of several files whose rows would be asked, and to which no rule comes that walks in order; a mask."""
    divisible = decided.ask & (np.diff(decided.spans.first_file) > 1)
    for decision in decided.decisions:
        divisible &= ~decision.ordered()
    return divisible
