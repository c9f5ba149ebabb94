"""Job: plan a pass over streams and tables, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retention import Guards
from retention.api.unlisted import unlisted_finding
from retention.apply.approval import approval_need, planned_loss
from retention.core.outcomes import Outcome
from retention.core.units import format_duration
from retention.core.wording import counted
from retention.errors.printable import visible_lines
from retention.history.report import RunReport, document
from retention.jobs.arguments import add_selection
from retention.jobs.lifting import add_lifts, lifted
from retention.jobs.reporting import add_page
from retention.jobs.running import JobResult, JobRun, job
from retention.plan.extent import extent_of
from retention.plan.plan import Plan
from retention.views.json_entries import plan_entry, table_plan_entry
from retention.views.text_guards import warning_guards

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.tables.plan import TablePlan
    from retention.tables.report import TableReport


@job(
    "plan",
    "Plan a pass over streams and tables; the report can be approved for retain.",
    add_selection,
    add_lifts,
    add_page,
)
def main(run: JobRun) -> JobResult:
    """Plan a pass over streams and change nothing."""
    arguments = run.arguments
    warehouse = run.open_with_streams(tables=True)
    instant = run.instant(warehouse)
    names, tables = warehouse.chosen_with_tables(arguments.stream, arguments.tag)
    guards = lifted(arguments)
    of_tables = warehouse.plan_tables(tables, instant)
    table_refusals = refusals_of_tables(warehouse, of_tables, guards)
    outcomes, refusals = with_refusals(warehouse, warehouse.plan(names, instant), guards)
    for text in [*notes(outcomes, refusals), *notes(of_tables, table_refusals)]:
        print(f"plan: {visible_lines(text)}", file=sys.stderr)
    table_entries = [entry_of_table(warehouse, each, table_refusals) for each in of_tables]
    report = document(
        instant,
        [entry(warehouse, each, refusals) for each in outcomes],
        table_entries if warehouse.tables() else None,
    )
    plans = [outcome.value for outcome in outcomes if outcome.value is not None]
    removed = counted(sum(plan.removed_messages for plan in plans), "message")
    removed += f" ({counted(sum(plan.removed_bytes for plan in plans), 'byte')})"
    if of_tables:
        rows = sum(outcome.value.removed_rows for outcome in of_tables if outcome.value)
        removed += f" and {counted(rows, 'row')}"
    text = run.summary(outcomes, f"would remove {removed}", of_tables)
    unlisted = unlisted_finding(warehouse, arguments.stream, arguments.tag)
    unchanged_outcomes = [unchanged(outcome) for outcome in outcomes]
    return JobResult(
        report,
        text,
        unchanged_outcomes,
        warehouse=warehouse,
        unlisted=unlisted,
        tables=[unchanged_table(warehouse, outcome) for outcome in of_tables],
    )


def refusals_of_tables(
    warehouse: Warehouse, outcomes: Iterable[Outcome[TablePlan]], guards: Guards
) -> dict[str, str]:
    """Predict how `apply` would refuse plans of tables, a sentence by table."""
    from retention.tables.permits import refusal_of

    answers = {
        outcome.stream: refusal_of(warehouse.table(outcome.stream).opened, outcome.value, guards)
        for outcome in outcomes
        if outcome.value is not None
    }
    return {name: sentence for name, sentence in answers.items() if sentence is not None}


def entry_of_table(
    warehouse: Warehouse, outcome: Outcome[TablePlan], refusals: Mapping[str, str]
) -> dict[str, Any]:
    """The JSON entry of a planned table: whether a pass would change it, be refused, or need a person's approval."""
    from retention.tables.permits import planned_rows

    plan = outcome.value
    if plan is None:
        return table_plan_entry(outcome)
    settings = warehouse.table(plan.table).opened.settings
    return table_plan_entry(outcome) | {
        "would_change": not plan.is_empty,
        "grace": format_duration(settings.grace),
        "needs_approval": approval_need(settings, planned_rows(plan)),
        "refused": refusals.get(plan.table),
    }


def with_refusals(
    warehouse: Warehouse, outcomes: list[Outcome[Plan]], guards: Guards
) -> tuple[list[Outcome[Plan]], dict[str, str]]:
    """Predict how `apply` would refuse plans, a sentence by stream; a stream fails if this is not possible."""
    from retention.api.refusals import foretold

    answers = foretold(
        warehouse, (each.value for each in outcomes if each.value is not None), guards
    )
    errors = {name: answer.error for name, answer in answers.items() if answer.error is not None}
    known = [
        replace(each, value=None, error=errors[each.stream]) if each.stream in errors else each
        for each in outcomes
    ]
    return known, {
        name: answer.value for name, answer in answers.items() if answer.value is not None
    }


def notes(
    outcomes: Iterable[Outcome[Plan]] | Iterable[Outcome[TablePlan]], refusals: Mapping[str, str]
) -> Iterator[str]:
    """The sentences about plans that `apply` would refuse, or carry out with a warning."""
    for outcome in outcomes:
        if outcome.stream in refusals:
            yield f"apply would refuse this: {refusals[outcome.stream]}"
        elif outcome.value is not None:
            yield from (
                f"{outcome.stream}: {text}" for text in warning_guards(outcome.value.guards)
            )


def entry(
    warehouse: Warehouse, outcome: Outcome[Plan], refusals: Mapping[str, str]
) -> dict[str, Any]:
    """The JSON entry of a planned stream: whether a pass would change it, be refused, or need a person's approval."""
    plan = outcome.value
    if plan is None:
        return plan_entry(outcome)
    config = warehouse.config
    settings = config.stream(plan.header.stream) or config.default_stream(plan.header.stream)
    need = approval_need(settings, planned_loss(plan))
    extent = extent_of(plan)
    return plan_entry(outcome) | {
        "would_change": not plan.is_empty,
        "extent": None if extent is None else extent.as_json(),
        "grace": format_duration(settings.grace),
        "needs_approval": need,
        "refused": refusals.get(plan.header.stream),
    }


def unchanged(outcome: Outcome[Plan]) -> Outcome[RunReport]:
    """The outcome of a stream that planning leaves unchanged, as metrics count it."""
    plan = outcome.value
    nothing = (
        None if plan is None else RunReport.of_nothing(plan.header.stream, plan.header.as_of_ns)
    )
    return Outcome(outcome.stream, nothing, outcome.error, outcome.seconds)


def unchanged_table(warehouse: Warehouse, outcome: Outcome[TablePlan]) -> Outcome[TableReport]:
    """The outcome of a table that planning leaves unchanged, as metrics count it."""
    from retention.tables.permits import nothing_done

    plan = outcome.value
    nothing = (
        None if plan is None else nothing_done(warehouse.table(plan.table).opened, plan.as_of_ns)
    )
    return Outcome(outcome.stream, nothing, outcome.error, outcome.seconds)


if __name__ == "__main__":
    raise SystemExit(main())
