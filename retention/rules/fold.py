"""One pass over a stream: rules folded in order, as far as statistics decide, and the questions that remain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retention.core.spans import Array, Spans
from retention.rules import RULES
from retention.rules.row_verdicts import Question
from retention.rules.rule import NO_FACTS, Decision, PriorRemovals, Rule, Scan, SubjectFacts


@dataclass(frozen=True)
class Evaluation:
    """The pass, decided per span where statistics can; masks with an entry a span."""

    spans: Spans
    decisions: tuple[Decision, ...]
    """One decision a rule, in the order of the pass."""
    gone: Array
    """Spans that go whole, whatever rows say; a mask."""
    ask: Array
    """Spans whose rows decide; a mask."""
    subjects: SubjectFacts = NO_FACTS
    """The facts by which rules about subjects were decided."""
    held: Array | None = None
    """Spans that stay whole although rules would take them; a mask; None: none does."""

    @property
    def scan(self) -> Scan | None:
        """The scan of the pass; None: no rule scans."""
        return next(
            (decision.scan for decision in self.decisions if decision.scan is not None), None
        )

    def question(self, span: int) -> Question:
        """The rules' question to the rows of any span, also of one that statistics decided."""
        row_rules = (decision.question(span) for decision in self.decisions)
        return Question(span, tuple(rule for rule in row_rules if rule is not None))

    def whole(self, stopped_at: int | None) -> Array:
        """Spans that go whole by statistics, once it is known where the scan ended; a mask.

        Args:
            stopped_at: the first asked span whose rows end the scan; None: only statistics end it.
        """
        goes = np.zeros(len(self.spans), dtype=bool)
        for decision in self.decisions:
            goes |= decision.takes_whole(stopped_at)
        if self.held is not None:
            goes &= ~self.held
        return goes & ~self.ask

    def by_rule(self, stopped_at: int | None) -> Array:
        """Messages that each rule takes of each span that goes whole; shape (spans, rules).

        Args:
            stopped_at: as in `whole`.
        """
        counts = np.zeros((len(self.spans), len(RULES)), dtype=np.int64, order="F")
        remaining = np.where(self.whole(stopped_at), self.spans.messages, 0)
        for decision in self.decisions:
            some = np.minimum(decision.counted, remaining)
            takes = np.where(decision.takes_whole(stopped_at), remaining, some)
            counts[:, RULES.index(decision.rule.name)] = takes
            remaining -= takes
        return counts


def fold(spans: Spans, rules: Sequence[Rule], subjects: SubjectFacts) -> Evaluation:
    """Decide a pass as far as statistics do: each rule sees what the rules before it leave.

    Args:
        spans: the stream.
        rules: in the order of the pass; at most one scans.
        subjects: what is known of subjects, by which rules about them decide.
    """
    gone, some, unclear, rows = (np.zeros(len(spans), dtype=bool) for _ in range(4))
    decisions = []
    for rule in rules:
        decision = rule.decide(spans, PriorRemovals(gone.copy(), some & ~gone, unclear & ~gone))
        gone |= decision.sure
        unclear |= decision.unclear
        some |= decision.unclear
        some |= decision.counted > 0
        rows |= decision.rows
        decisions.append(decision)
    return Evaluation(spans, tuple(decisions), gone, rows | (some & ~gone), subjects)
