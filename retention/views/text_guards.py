"""Guards as text: their findings on a plan, those that a run exceeded; and limits lowered since the last run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from retention.core.units import format_size
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.core.outcomes import Outcome
    from retention.history.report import RunReport
    from retention.plan.lowered import LimitChange, LoweredLimit
    from retention.rules.removal_guards import GuardFinding
    from retention.tables.report import TableReport


def guards_text(findings: Iterable[GuardFinding]) -> Iterator[str]:
    """The guards that a plan exceeds, a sentence each, with the consequence."""
    for finding in findings:
        then = (
            "`apply` refuses it without --allow-large"
            if finding.refuses
            else "`apply` reports it and continues"
        )
        yield f"guard: the pass {finding.sentence}: {then}"


def warning_guards(findings: Iterable[GuardFinding]) -> Iterator[str]:
    """The guards that a plan exceeds without being refused, a sentence each."""
    return guards_text(finding for finding in findings if finding.then == "warn")


def passed_guards_text(report: RunReport | TableReport) -> Iterator[str]:
    """The guards that a run exceeded, a sentence each, and why it continued."""
    for finding in report.guards or ():
        why = "lifted by --allow-large" if finding["lifted"] else "only a warning"
        yield f"guard: the pass {finding['sentence']} ({why})"


def passed_guards(
    outcomes: Sequence[Outcome[RunReport]] | Sequence[Outcome[TableReport]],
) -> Iterator[str]:
    """The guards that runs exceeded, a line each with the name of the stream or table."""
    for outcome in outcomes:
        if outcome.value is not None:
            yield from (f"{outcome.stream}: {text}" for text in passed_guards_text(outcome.value))


def lowered_text(lowered: Sequence[LoweredLimit]) -> Iterator[str]:
    """The limits lowered since the last pass, a sentence each, and the messages removed for that reason."""
    for limit in lowered:
        more = counted(limit.removed_messages, "message")
        taken = f"{more} ({format_size(limit.removed_bytes)})" if limit.removed_messages else "none"
        change = f"{limit.limit} {_limit(limit, limit.before)} → {_limit(limit, limit.now)}"
        yield f"lowered since the last run: {change}, which alone removes {taken}"


def _limit(change: LimitChange, value: int | None) -> str:
    from retention.rules.setting import spell_limit

    return "no limit" if value is None else spell_limit(value, change.unit)
