"""The veto on removals: every planner's decision passes it, after the rules and before the plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from retention.planners.rows import SpanRowsReader
from retention.rules.fold import Evaluation, Vetoed
from retention.rules.row_verdicts import Answer, answer_question
from retention.rules.veto import Veto


def veto(
    decided: Evaluation,
    vetoes: Sequence[Veto],
    asks: SpanRowsReader,
    known: Sequence[Answer] = (),
) -> Vetoed:
    """Keep the messages of vetoes, and answer the open questions from rows.

    Args:
        decided: the decision of rules from statistics.
        vetoes: the reasons to keep messages; without any, only the questions of rules are answered.
        asks: the reader of rows.
        known: answers that need no rows.

    Raises:
        DamagedError: a file cannot be read.
    """
    vetoed = decided.under(vetoes)
    answered = {answer.span for answer in known}
    open_spans = (span for span in np.flatnonzero(vetoed.ask).tolist() if span not in answered)
    questions = [vetoed.question(span) for span in open_spans]
    return Vetoed(vetoed, [*known, *asks(answer_question, vetoed.spans, questions)])
