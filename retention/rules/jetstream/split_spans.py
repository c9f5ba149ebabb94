"""Spans decided by deadlines alone, split by file: deadlines do not depend on the order of sequences."""

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
    """The excess of each span over the limit per subject, after spans without surplus are split."""

    excess: SubjectExcess
    number: Array
    """For each span, its number in `excess`."""

    @property
    def messages(self) -> Array:
        """Surplus messages of each span, int64."""
        return self.excess.messages[self.number]

    @property
    def subjects(self) -> int:
        """The number of all subjects."""
        return self.excess.subjects

    def of_span(self, span: int) -> RowRule:
        """The limit's rule for the rows of one span, or a reference to the stored rule."""
        return self.excess.of_span(int(self.number[span]))


def split_by_file(
    decided: Evaluation, files: pa.Table, policy: Policy, as_of_ns: int
) -> Evaluation:
    """Decide a pass again with single files as spans, if this changes only the files to read.

    A file with only passed deadlines is removed, a file without any is kept, and only the others are read.

    Args:
        decided: the pass, decided by spans.
        files: the inventory's, shape `FILE_STATS`.
        policy: the policy of `decided`.
        as_of_ns: the instant of `decided`.
    """
    if len(decided.spans) == files.num_rows:
        # Every span is a single file.
        return decided
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
    """Decide the same stream at other instants, at which the scan may reach spans that `decided` has split by file.

    Args:
        decided: a pass at any instant.
        files: the inventory's, shape `FILE_STATS`.
        policy: the limits at the other instants, with the same limit per subject.
        instants: the other instants, nanoseconds since the epoch.
    """
    spans, subjects = joined(decided.spans), decided.subjects
    if isinstance(subjects.excess, RegroupedExcess):
        subjects = replace(subjects, excess=subjects.excess.excess)
    for as_of_ns in instants:
        whole = evaluate(spans, policy, as_of_ns, subjects)
        yield split_by_file(whole, files, policy, as_of_ns)


def _divisible(decided: Evaluation) -> Array:
    """A mask of undecided spans of several files that no rule must read in order."""
    divisible = decided.ask & (np.diff(decided.spans.first_file) > 1)
    for decision in decided.decisions:
        divisible &= ~decision.ordered()
    return divisible
