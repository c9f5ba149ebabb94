"""The sentence for streams that a budget left unprocessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.views.wording import brief_duration

if TYPE_CHECKING:
    from retention.history.report import RunReport


def left_text(outcomes: Sequence[Outcome[RunReport]]) -> str:
    """The number of streams left for the next run, the reason, and the most overdue of them; empty if none are."""
    left = [
        outcome.value for outcome in outcomes if outcome.value is not None and outcome.value.is_left
    ]
    if not left:
        return ""
    behind = [report for report in left if _lag(report)["since_ns"] is not None]
    text = (
        f"{counted(len(left), 'stream')} left for the next run ({_lag(left[0])['budget']} is spent)"
    )
    if not behind:
        return f"{text}, none of them known to be late"
    first = min(behind, key=lambda report: int(_lag(report)["since_ns"]))
    late = brief_duration(first.as_of_ns - _lag(first)["since_ns"])
    return f"{text}, {len(behind):,} of them late: the most overdue is {first.stream}, by {late}"


def _lag(report: RunReport) -> dict[str, Any]:
    return dict(report.left or {})
