"""Rules given by their verdicts on spans: those of requests, of roll-ups and of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from retention.core.spans import Array, Spans
from retention.rules.rule import Decision, PriorRemovals, RowRule, SpanRule


@dataclass(frozen=True)
class Verdicts(SpanRule):
    """A rule that removes spans completely, or a part of their rows."""

    rule: str
    whole: Array
    """A mask of the completely removed spans."""
    parts: Mapping[int, RowRule] = field(default_factory=dict)
    """Span → the question to its rows, for spans that may lose a part of them."""

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule

    def decide(self, spans: Spans, before: PriorRemovals) -> GivenDecision:
        """The verdicts, without spans that rules before it remove."""
        whole, nothing = self.whole & ~before.gone, np.zeros(len(spans), dtype=bool)
        return GivenDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole,
            rows=np.isin(np.arange(len(spans)), list(self.parts)),
            counted=nothing.astype(np.int64),
            unclear=nothing,
        )


@dataclass(frozen=True, kw_only=True)
class GivenDecision(Decision):
    """The decision of a rule that is given by its verdicts."""

    rule: Verdicts

    def question(self, span: int) -> RowRule | None:
        """The question to the span's rows; for a completely removed span, that of a rule that removes them all."""
        return EveryRow(self.rule.name) if self.whole[span] else self.rule.parts.get(span)

    def bounds(self) -> tuple[Array, Array]:
        """Exactly the completely removed spans, and up to all messages of those that need their rows."""
        lower = np.where(self.whole, self.spans.messages, 0)
        return lower, np.where(self.rows, self.spans.messages, lower)


@dataclass(frozen=True)
class EveryRow(RowRule):
    """All rows of a span."""

    rule: str

    def takes(self, rows: pa.Table) -> Array:
        """Every row."""
        return np.ones(rows.num_rows, dtype=bool)
