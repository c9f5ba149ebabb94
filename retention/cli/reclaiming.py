"""The command that frees disk space: reclaim."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from retention.cli.app import app
from retention.cli.arguments import Streams, Tags
from retention.cli.output import (
    TableOutcomes,
    chosen_with_tables,
    finish,
    put_outcomes,
    say,
    say_unlisted,
)
from retention.cli.progress import progress
from retention.cli.settings import settings_of
from retention.core.outcomes import Outcome
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.apply.reclaim.report import ReclaimReport
    from retention.tables.reclaim import TableReclaim

Yes = Annotated[bool, typer.Option("--yes", help="Delete the files (without it: a dry run).")]
Leftovers = Annotated[
    bool,
    typer.Option(
        "--leftovers", help="Only files left by killed processes; deletes those noted a grace ago."
    ),
]

Unlisted = Annotated[
    bool,
    typer.Option("--unlisted", help="Only streams that no configuration lists."),
]


@app.command()
def reclaim(
    ctx: typer.Context,
    streams: Streams = None,
    tags: Tags = None,
    yes: Yes = False,
    leftovers: Leftovers = False,
    unlisted: Unlisted = False,
) -> None:
    """Delete files after their grace period."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.views.reclaim import (
        reclaim_entry,
        reclaim_text,
        table_reclaim_entry,
        table_reclaim_text,
    )

    instant = warehouse.clock()
    if unlisted and tags:
        raise UsageError("unlisted streams have no tags: leave out --tag or --unlisted")
    names, tables = (
        (warehouse.chosen_unlisted(streams or ()), [])
        if unlisted
        else chosen_with_tables(warehouse, streams, tags, warehouse.reclaimable())
    )
    if not names and not tables:
        say("there is no stream to reclaim from")
        return
    outcomes: list[Outcome[ReclaimReport]] = []
    if names or not tables:
        with progress(settings, "reclaiming", len(names), _reclaimed) as watch:
            reclaiming = warehouse.reclaim_leftovers if leftovers else warehouse.reclaim
            dry_run = reclaiming(names, watch)
            outcomes = dry_run.apply() if yes else dry_run.plan
    of_tables: list[Outcome[TableReclaim]] = []
    if tables and not leftovers:
        with progress(settings, "reclaiming", len(tables), _reclaimed_of_table) as watch:
            of_table = warehouse.reclaim_tables(tables, watch)
            of_tables = of_table.apply() if yes else of_table.plan
    shown = TableOutcomes.of(warehouse, of_tables, table_reclaim_text, table_reclaim_entry)
    put_outcomes(settings, outcomes, instant, reclaim_text, reclaim_entry, shown)
    going = [outcome.value.total.files for outcome in outcomes if outcome.value]
    going += [outcome.value.going.files for outcome in of_tables if outcome.value]
    if not yes and any(going):
        say("nothing was deleted; repeat it with --yes")
    every: list[Outcome[Any]] = [*outcomes, *of_tables]
    finish(every, 0 if unlisted else say_unlisted(warehouse, streams, tags).exit_code)


def _reclaimed(report: ReclaimReport) -> str:
    verb = "deleted" if report.is_done else "would delete"
    return f"{verb} {counted(report.total.files, 'file')}"


def _reclaimed_of_table(report: TableReclaim) -> str:
    verb = "deleted" if report.is_done else "would delete"
    return f"{verb} {counted(report.going.files, 'file')}"
