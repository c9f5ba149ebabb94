"""The command that decides: plan."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, Streams, Tags
from retention.cli.output import (
    MOST_BLOCKS,
    TableOutcomes,
    chosen_with_tables,
    finish,
    put_outcomes,
    say,
    say_unlisted,
)
from retention.cli.progress import progress
from retention.cli.settings import Settings, settings_of
from retention.cli.table_rows import put_table_rows
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.errors import BusyError, RefusedError, UsageError

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.plan.estimate_bounds import Estimate
    from retention.plan.plan import Plan
    from retention.tables.plan import TablePlan

PlanFile = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Save the plan, for `apply FILE`."),
]
_WOULD_CHANGE = 3


@app.command()
def plan(
    ctx: typer.Context,
    streams: Streams = None,
    tags: Tags = None,
    as_of: AsOf = None,
    output: PlanFile = None,
    code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if anything would change.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print bounds only; opens no data file.")
    ] = False,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Of a table: write the rows to remove as .parquet, .csv (formulas after an apostrophe) or .jsonl.",
        ),
    ] = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Of a table: print the statements that remove the same.")
    ] = False,
) -> None:
    """Show what would be removed, and why; change nothing."""
    settings = settings_of(ctx)
    if rows is not None or sql:
        if output is not None or code or estimate:
            raise UsageError(
                "--rows and --sql print no plan: leave out -o, --exit-code, --estimate"
            )
        put_table_rows(settings, streams or [], as_of, rows, sql=sql)
        return
    if estimate and (output is not None or code):
        raise UsageError("--estimate makes no plan: leave out -o and --exit-code, or --estimate")
    warehouse = settings.open()
    instant = warehouse.instant(as_of)
    names, tables = chosen_with_tables(warehouse, streams, tags)
    if output is not None:
        from retention.api.plan_files import check_location

        check_location(output, streams=bool(names), tables=bool(tables))
    if estimate:
        _estimate(settings, warehouse, names, tables, instant)
        return
    outcomes = plan_streams(settings, warehouse, names, instant)
    of_tables = plan_tables(settings, warehouse, tables, instant)
    _note_refusals(warehouse, outcomes)
    _note_refusals_of_tables(warehouse, of_tables)
    if output is not None:
        _save(output, outcomes, of_tables)
    _put_plans(settings, warehouse, outcomes, of_tables, instant)
    every: list[Outcome[Any]] = [*outcomes, *of_tables]
    finish(every, say_unlisted(warehouse, streams, tags).exit_code)
    if code and any(outcome.value and not outcome.value.is_empty for outcome in every):
        raise typer.Exit(_WOULD_CHANGE)


def _put_plans(
    settings: Settings,
    warehouse: Warehouse,
    outcomes: Sequence[Outcome[Plan]],
    of_tables: Sequence[Outcome[TablePlan]],
    instant: int,
) -> None:
    from retention.views.json_entries import plan_entry, table_plan_entry
    from retention.views.text import brief_plan_text, plan_text
    from retention.views.text_table import table_plan_text

    lines = plan_text if len(outcomes) <= MOST_BLOCKS else brief_plan_text
    shown = TableOutcomes.of(warehouse, of_tables, table_plan_text, table_plan_entry)
    put_outcomes(settings, outcomes, instant, lines, plan_entry, shown)


def plan_streams(
    settings: Settings, warehouse: Warehouse, names: Sequence[str], instant: int
) -> list[Outcome[Plan]]:
    """Plan streams one by one, showing progress."""
    with progress(settings, "planning", len(names), _would_go) as watch:
        return warehouse.plan(names, instant, watch)


def plan_tables(
    settings: Settings, warehouse: Warehouse, names: Sequence[str], instant: int
) -> list[Outcome[TablePlan]]:
    """Plan tables one by one, showing progress."""
    if not names:
        return []
    with progress(settings, "planning", len(names), _rows_would_go) as watch:
        return warehouse.plan_tables(names, instant, watch)


def _save(
    file: str, outcomes: Sequence[Outcome[Plan]], tables: Sequence[Outcome[TablePlan]]
) -> None:
    from retention.api.plan_files import save

    plans = [outcome.value for outcome in outcomes if outcome.value is not None]
    of_tables = [outcome.value for outcome in tables if outcome.value is not None]
    save(file, plans, of_tables)
    made, wanted = len(plans) + len(of_tables), len(outcomes) + len(tables)
    say(
        f"saved {made} of {counted(wanted, 'plan')}: `retention apply {file}` carries out exactly these"
    )


def _note_refusals(warehouse: Warehouse, outcomes: Sequence[Outcome[Plan]]) -> None:
    """Print which plans `apply` would refuse, since a plan may be made for any instant, under any configuration."""
    from retention.apply.guards import Guards, check_instant, check_update
    from retention.context.ownership import refuse_other_owner
    from retention.history.runs import history_of

    for outcome in outcomes:
        if outcome.value is not None:
            opened = warehouse.log(outcome.stream).opened
            history = history_of(warehouse.location, outcome.stream)
            instant = partial(check_instant, opened, history, outcome.value.header.as_of_ns)
            for check in (
                partial(refuse_other_owner, opened),
                partial(instant, Guards(allow_rewind=True)),
                partial(instant, Guards(allow_future=True)),
                partial(check_update, opened, history),
                history.refuse_newer,
            ):
                try:
                    check()
                except (RefusedError, BusyError) as refusal:
                    say(f"note: apply would refuse this plan: {refusal}")


def _note_refusals_of_tables(warehouse: Warehouse, outcomes: Sequence[Outcome[TablePlan]]) -> None:
    """Print which plans of tables `apply` would refuse; guards are in the lines of the plan."""
    from retention.apply.guards import Guards
    from retention.tables.permits import refusal_of

    for outcome in outcomes:
        if outcome.value is not None:
            opened = warehouse.table(outcome.stream).opened
            refusal = refusal_of(opened, outcome.value, Guards(allow_large=True))
            if refusal is not None:
                say(f"note: apply would refuse this plan: {refusal}")


def _estimate(
    settings: Settings,
    warehouse: Warehouse,
    names: Sequence[str],
    tables: Sequence[str],
    instant: int,
) -> None:
    from retention.core.outcomes import act_sequentially
    from retention.planners.estimate import estimate
    from retention.views.json_entries import entry, table_entry
    from retention.views.text import estimate_text
    from retention.views.text_table import table_estimate_text

    def act(name: str) -> Estimate:
        return estimate(warehouse.log(name).opened, instant)

    outcomes = act_sequentially(names, act, warehouse.clock)
    of_tables = warehouse.estimate_tables(tables, instant)
    shown = TableOutcomes.of(warehouse, of_tables, table_estimate_text, table_entry)
    put_outcomes(settings, outcomes, instant, estimate_text, entry, shown)
    finish([*outcomes, *of_tables])


def _would_go(plan: Plan) -> str:
    return f"planned, would remove {counted(plan.removed_messages, 'message')}"


def _rows_would_go(plan: TablePlan) -> str:
    return f"planned, would remove {counted(plan.removed_rows, 'row')}"
