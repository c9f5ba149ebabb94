"""Fold of rules over a stream, in order: the decisions from statistics, and the questions that remain for rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from retention.core.spans import Array, Spans
from retention.rules import RULES
from retention.rules.row_verdicts import Answer, Question
from retention.rules.rule import NO_FACTS, Decision, PriorRemovals, Scan, SpanRule, SubjectFacts
from retention.rules.veto import Veto, spans_kept


@dataclass(frozen=True)
class Evaluation:
    """The removal, decided per span if statistics allow it; masks have one entry per span."""

    spans: Spans
    decisions: tuple[Decision, ...]
    """One decision per rule, in the order of the pass."""
    gone: Array
    """A mask of spans removed completely for any content of rows."""
    ask: Array
    """A mask of spans that need their rows."""
    held: Array
    """A mask of spans that rules would remove and vetoes keep completely."""
    subjects: SubjectFacts = NO_FACTS
    """The facts for rules about subjects."""
    vetoes: tuple[Veto, ...] = ()
    """The vetoes that keep messages from the rules."""

    @property
    def scan(self) -> Scan | None:
        """The age scan of the pass; None: no rule scans."""
        return next(
            (decision.scan for decision in self.decisions if decision.scan is not None), None
        )

    def question(self, span: int) -> Question:
        """The rules' question to the rows of any span, including one decided by statistics."""
        row_rules = (decision.question(span) for decision in self.decisions)
        parts = tuple(rule for rule in row_rules if rule is not None)
        vetoes = tuple(veto.within(self.spans, span) for veto in self.vetoes)
        return Question(span, parts, vetoes=vetoes)

    def under(self, vetoes: Sequence[Veto]) -> Evaluation:
        """The decision under vetoes: the rows of a span are needed if a veto may keep only a part of it.

        A completely kept span needs them as well if several rules remove its messages, to find the rule of each.
        """
        if not vetoes:
            return self
        by_rule = self.by_rule(None)
        goes = by_rule.any(axis=1)
        whole, some = spans_kept(vetoes, self.spans)
        held = goes & whole & (np.count_nonzero(by_rule, axis=1) == 1)
        ask = self.ask | (goes & (whole | some) & ~held)
        return replace(self, ask=ask, vetoes=tuple(vetoes), held=held)

    def whole(self, stopped_at: int | None) -> Array:
        """A mask of spans removed completely by statistics, given the end of the scan.

        Args:
            stopped_at: the first queried span whose rows end the scan; None: only statistics end it.
        """
        goes = np.zeros(len(self.spans), dtype=bool)
        for decision in self.decisions:
            goes |= decision.takes_whole(stopped_at)
        return goes & ~self.ask & ~self.held

    def by_rule(self, stopped_at: int | None) -> Array:
        """Messages that each rule removes from each completely removed span; shape (spans, rules).

        Args:
            stopped_at: as in `whole`.
        """
        counts = np.zeros((len(self.spans), len(RULES)), dtype=np.int64, order="F")
        for name, taken in self.taken(stopped_at).items():
            counts[:, RULES.index(name)] = taken
        return counts

    def taken(self, stopped_at: int | None) -> dict[str, Array]:
        """The columns of `by_rule`, by the names of the rules of the pass."""
        remaining = np.where(self.whole(stopped_at), self.spans.messages, 0)
        taken: dict[str, Array] = {}
        for decision in self.decisions:
            some = np.minimum(decision.counted, remaining)
            takes = np.where(decision.takes_whole(stopped_at), remaining, some)
            taken[decision.rule.name] = takes
            remaining = remaining - takes
        return taken


@dataclass(frozen=True)
class Vetoed:
    """A complete decision, which vetoes have passed: from statistics, and from rows."""

    decided: Evaluation
    answers: Sequence[Answer]
    """The answers of rows to its questions, without kept messages."""


def fold(spans: Spans, rules: Sequence[SpanRule], subjects: SubjectFacts = NO_FACTS) -> Evaluation:
    """Decide a removal from statistics; each rule applies to the messages left by the rules before it.

    Args:
        spans: the stream.
        rules: those of a pass in its order, or of a request; at most one scans.
        subjects: the known facts for rules about subjects.
    """
    gone, some, unclear, rows, held = (np.zeros(len(spans), dtype=bool) for _ in range(5))
    decisions = []
    for rule in rules:
        decision = rule.decide(spans, PriorRemovals(gone.copy(), some & ~gone, unclear & ~gone))
        gone |= decision.sure
        unclear |= decision.unclear
        some |= decision.unclear
        some |= decision.counted > 0
        rows |= decision.rows
        decisions.append(decision)
    return Evaluation(spans, tuple(decisions), gone, rows | (some & ~gone), held, subjects)
