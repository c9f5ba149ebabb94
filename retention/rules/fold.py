"""Fold of rules over a stream, in order: the decisions from statistics, and the questions that remain for rows."""

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
    """The pass, decided per span if statistics allow it; masks have one entry per span."""

    spans: Spans
    decisions: tuple[Decision, ...]
    """One decision per rule, in the order of the pass."""
    gone: Array
    """A mask of spans removed completely for any content of rows."""
    ask: Array
    """A mask of spans that need their rows."""
    subjects: SubjectFacts = NO_FACTS
    """The facts for rules about subjects."""
    held: Array | None = None
    """A mask of held spans, which rules would remove; None: none."""

    @property
    def scan(self) -> Scan | None:
        """The age scan of the pass; None: no rule scans."""
        return next(
            (decision.scan for decision in self.decisions if decision.scan is not None), None
        )

    def question(self, span: int) -> Question:
        """The rules' question to the rows of any span, including one decided by statistics."""
        row_rules = (decision.question(span) for decision in self.decisions)
        return Question(span, tuple(rule for rule in row_rules if rule is not None))

    def whole(self, stopped_at: int | None) -> Array:
        """A mask of spans removed completely by statistics, given the end of the scan.

        Args:
            stopped_at: the first queried span whose rows end the scan; None: only statistics end it.
        """
        goes = np.zeros(len(self.spans), dtype=bool)
        for decision in self.decisions:
            goes |= decision.takes_whole(stopped_at)
        if self.held is not None:
            goes &= ~self.held
        return goes & ~self.ask

    def by_rule(self, stopped_at: int | None) -> Array:
        """Messages that each rule removes from each completely removed span; shape (spans, rules).

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
    """Decide a pass from statistics; each rule applies to the messages left by the rules before it.

    Args:
        spans: the stream.
        rules: in the order of the pass; at most one scans.
        subjects: the known facts for rules about subjects.
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
