"""Outcomes of several streams and tables as lists that display themselves; their words load when they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from retention.core.display import Displayed, DisplayedList
from retention.core.outcomes import Outcome

Value = TypeVar("Value")


class Outcomes(DisplayedList[Outcome[Value]]):
    """An outcome for each stream or table: a list that displays itself."""

    def display_rows(self) -> list[Mapping[str, Any]]:
        """The name, the outcome in a sentence, and the time that it took."""
        return [
            {"name": each.stream, "seconds": each.seconds, "outcome": _sentence(each)}
            for each in self
        ]


def _sentence(outcome: Outcome[Any]) -> str:
    """The outcome of one stream: the first line of its text, or its error."""
    value = outcome.value
    if value is None:
        return outcome.sentence or "nothing"
    return _headline(value).removeprefix(f"{outcome.stream}: ")


def _headline(value: Any) -> str:
    from retention.apply.reclaim.report import ReclaimReport
    from retention.history.compaction_report import CompactionReport
    from retention.history.report import RunReport
    from retention.plan.compaction import CompactionPlan
    from retention.plan.plan import Plan
    from retention.tables.plan import TablePlan
    from retention.tables.reclaim import TableReclaim
    from retention.tables.report import TableReport
    from retention.views import reclaim, text, text_compaction, text_table

    texts: dict[type, Any] = {
        Plan: text.plan_text,
        RunReport: text.report_text,
        TablePlan: text_table.table_plan_text,
        TableReport: text_table.table_report_text,
        CompactionPlan: text_compaction.compaction_plan_text,
        CompactionReport: text_compaction.compaction_text,
        ReclaimReport: reclaim.reclaim_text,
        TableReclaim: reclaim.table_reclaim_text,
    }
    for kind, words in texts.items():
        if isinstance(value, kind):
            return str(next(iter(words(value))))
    return repr(value) if isinstance(value, Displayed) else str(value)
