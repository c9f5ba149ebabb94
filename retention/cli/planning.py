"""The command that decides: plan."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, Streams, Tags
from retention.cli.output import (
    MOST_BLOCKS,
    chosen_streams,
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
            help="Of a table: write the rows to remove as .parquet, .csv or .jsonl.",
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
    if output is not None:
        from retention.plan.planfile import check_plan_file

        check_plan_file(output)
    warehouse = settings.open()
    instant = warehouse.instant(as_of)
    names = chosen_streams(warehouse, streams, tags)
    if estimate:
        _estimate(settings, warehouse, names, instant)
        return
    outcomes = plan_streams(settings, warehouse, names, instant)
    _note_refusals(warehouse, outcomes)
    if output is not None:
        _save(output, outcomes)
    from retention.views.json_entries import plan_entry
    from retention.views.text import brief_plan_text, plan_text

    lines = plan_text if len(outcomes) <= MOST_BLOCKS else brief_plan_text
    put_outcomes(settings, outcomes, instant, lines, plan_entry)
    finish(outcomes, say_unlisted(warehouse, streams, tags).exit_code)
    if code and any(outcome.value and not outcome.value.is_empty for outcome in outcomes):
        raise typer.Exit(_WOULD_CHANGE)


def plan_streams(
    settings: Settings, warehouse: Warehouse, names: Sequence[str], instant: int
) -> list[Outcome[Plan]]:
    """Plan streams one by one, showing progress."""
    with progress(settings, "planning", len(names), _would_go) as watch:
        return warehouse.plan(names, instant, watch)


def _save(file: str, outcomes: Sequence[Outcome[Plan]]) -> None:
    from retention.plan.planfile import save_plans

    plans = [outcome.value for outcome in outcomes if outcome.value is not None]
    save_plans(file, plans)
    say(
        f"saved {len(plans)} of {counted(len(outcomes), 'plan')}: `retention apply {file}` carries out exactly these"
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


def _estimate(settings: Settings, warehouse: Warehouse, names: Sequence[str], instant: int) -> None:
    from retention.core.outcomes import act_sequentially
    from retention.planners.estimate import estimate
    from retention.views.json_entries import entry
    from retention.views.text import estimate_text

    def act(name: str) -> Estimate:
        return estimate(warehouse.log(name).opened, instant)

    outcomes = act_sequentially(names, act, warehouse.clock)
    put_outcomes(settings, outcomes, instant, estimate_text, entry)
    finish(outcomes)


def _would_go(plan: Plan) -> str:
    return f"planned, would remove {counted(plan.removed_messages, 'message')}"
