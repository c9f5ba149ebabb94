"""Job: apply the retention rules to streams and tables."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retention import Guards
from retention.api.budgeted import Applied, apply_within
from retention.api.unlisted import unlisted_finding
from retention.apply.budget import Budget
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.errors.printable import visible_lines
from retention.history.report import RunReport, document
from retention.history.runs import history_of
from retention.history.tries import earlier_try
from retention.jobs.approving import chosen, note_late, read_approved
from retention.jobs.arguments import add_budget, add_selection, add_wait
from retention.jobs.lifting import add_lifts, lifted
from retention.jobs.reporting import add_page
from retention.jobs.running import JobResult, JobRun, done_units, job
from retention.views.json_entries import entry, report_entry, table_report_entry
from retention.views.left import left_text
from retention.views.text_guards import passed_guards

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.apply.approval import Approved
    from retention.apply.compact import CompactionLimits
    from retention.history.compaction_report import CompactionReport
    from retention.tables.report import TableReport


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compact",
        action="store_true",
        help="then compact streams with `compact` in the configuration",
    )
    add_lifts(parser)
    parser.add_argument(
        "--reason", metavar="TEXT", help="the reason for lifting a refusal, recorded with the run"
    )
    parser.add_argument(
        "--skip-superseded",
        action="store_true",
        help="skip streams with a later applied instant instead of refusing them",
    )
    add_selection(parser)
    add_budget(parser)
    parser.add_argument(
        "--approved",
        metavar="REPORT",
        help="apply only what this report of jobs/plan.py plans",
    )


def _refusal(arguments: argparse.Namespace) -> str | None:
    if arguments.approved is None:
        return None
    if arguments.as_of is not None:
        return "an approved report has its own instant: leave out --as-of"
    return "an approved report has its own streams: leave out --tag" if arguments.tag else None


@job(
    "retain",
    "Apply the retention rules to streams and tables.",
    add_wait,
    _add_arguments,
    add_page,
    refusal=_refusal,
)
def main(run: JobRun) -> JobResult:
    """Apply the retention rules to streams and tables."""
    arguments = run.arguments
    budget = Budget.parsed(arguments.max_time, arguments.max_bytes)
    warehouse = run.open_with_streams(tables=True)
    names, tables, instant, approved = asked_for(warehouse, run)
    guards = replace(
        lifted(arguments, approved),
        reason=arguments.reason,
        skip_superseded=arguments.skip_superseded,
    )
    done = retain(warehouse, names, tables, instant, guards, budget)
    outcomes, of_tables = done.streams, done.tables
    passed = [*passed_guards(outcomes), *passed_guards(of_tables)]
    for text in [*passed, *note_late([*outcomes, *of_tables])]:
        print(f"retain: {visible_lines(text)}", file=sys.stderr)
    entries = [entry_of(warehouse, each, instant) for each in outcomes]
    table_entries = [entry_of_table(warehouse, each, instant) for each in of_tables]
    report = document(instant, entries, table_entries if warehouse.tables() else None)
    compactions: list[Outcome[CompactionReport]] = []
    if arguments.compact:
        limits = None if budget is None else rest(budget, done, run.started_ns)
        compactions = compact(warehouse, names, limits)
        report["compactions"] = [entry(outcome) for outcome in compactions]
    text = summary(outcomes, run.seconds, of_tables)
    unlisted = unlisted_finding(warehouse, names if approved else arguments.stream, arguments.tag)
    every: list[Outcome[Any]] = [*outcomes, *compactions]
    return JobResult(report, text, every, warehouse=warehouse, unlisted=unlisted, tables=of_tables)


def asked_for(
    warehouse: Warehouse, run: JobRun
) -> tuple[list[str], list[str], int, dict[str, Approved]]:
    """The streams and the tables to act on, the instant, and their approvals."""
    arguments = run.arguments
    if arguments.approved is None:
        names, tables = warehouse.chosen_with_tables(arguments.stream, arguments.tag)
        return names, tables, run.instant(warehouse), {}
    instant, approved = read_approved(arguments.approved)
    named, listed = chosen(approved, arguments.stream), warehouse.tables()
    tables = [name for name in named if name in listed]
    return [name for name in named if name not in listed], tables, instant, approved


def retain(
    warehouse: Warehouse,
    names: list[str],
    tables: list[str],
    as_of_ns: int,
    guards: Guards,
    budget: Budget | None,
) -> Applied:
    """Apply one pass to streams and tables; with a budget the most overdue first, until it is spent."""
    if budget is not None:
        return apply_within(warehouse, [*names, *tables], as_of_ns, budget, guards)
    return Applied(
        warehouse.apply(names, as_of_ns, guards), warehouse.apply_tables(tables, as_of_ns, guards)
    )


def entry_of(warehouse: Warehouse, outcome: Outcome[RunReport], as_of_ns: int) -> dict[str, Any]:
    """The JSON entry of a stream; `earlier_try` has the task's previous try, if only that one found something to do."""
    report = outcome.value
    if report is None or report.removed_messages or report.markers:
        return report_entry(outcome)
    earlier = earlier_try(history_of(warehouse.location, outcome.stream), as_of_ns)
    if earlier is None:
        return report_entry(outcome)
    numbers = {name: getattr(earlier, name) for name in _NUMBERS}
    return report_entry(outcome) | {"earlier_try": numbers}


def entry_of_table(
    warehouse: Warehouse, outcome: Outcome[TableReport], as_of_ns: int
) -> dict[str, Any]:
    """The JSON entry of a table; `earlier_try` as in `entry_of`."""
    report = outcome.value
    if report is None or report.removed_rows:
        return table_report_entry(outcome)
    earlier = earlier_try(history_of(warehouse.location, outcome.stream), as_of_ns)
    if earlier is None:
        return table_report_entry(outcome)
    numbers = {name: getattr(earlier, name) for name in _NUMBERS_OF_TABLES}
    return table_report_entry(outcome) | {"earlier_try": {"table": outcome.stream, **numbers}}


_NUMBERS = ("run", "removed_messages", "removed_bytes", "by_rule", "markers")
_NUMBERS_OF_TABLES = ("run", "removed_rows", "removed_bytes", "by_rule")


def rest(budget: Budget, done: Applied, started_ns: int) -> CompactionLimits:
    """The limits of the compaction after passes that began at an instant."""
    return budget.rest(time.time_ns() - started_ns, done.bytes)


def compact(
    warehouse: Warehouse, chosen: list[str], limits: CompactionLimits | None = None
) -> list[Outcome[CompactionReport]]:
    """Compact the chosen streams with `compact` in the configuration."""
    names = [name for name in warehouse.compacted() if name in chosen]
    return warehouse.compact(names, limits).apply()


def summary(
    outcomes: list[Outcome[RunReport]],
    seconds: float,
    tables: Sequence[Outcome[TableReport]] = (),
) -> str:
    """The outcomes of a run in one line."""
    reports = [outcome.value for outcome in outcomes if outcome.value is not None]
    messages = sum(report.removed_messages for report in reports)
    size = sum(report.removed_bytes for report in reports)
    of_tables = [outcome.value for outcome in tables if outcome.value is not None]
    failed = len(outcomes) + len(tables) - len(reports) - len(of_tables)
    done = f"retain: {done_units(outcomes, tables)} done, {failed} failed"
    overdue = sum((report.overdue or {}).get("messages_at_least", 0) for report in reports)
    kept = f"; kept at least {overdue:,} older than max_age (expiry: head)" if overdue else ""
    left = f"; {text}" if (text := left_text(outcomes, tables)) else ""
    removed = f"removed {counted(messages, 'message')} ({counted(size, 'byte')})"
    if tables:
        removed += f" and {counted(sum(each.removed_rows for each in of_tables), 'row')}"
    return f"{done}; {removed}{kept}{left}; {seconds:.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
