"""The command that frees disk space: reclaim."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Streams, Tags
from retention.cli.output import chosen_streams, finish, put_outcomes, say, say_unlisted
from retention.cli.progress import progress
from retention.cli.settings import settings_of
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.apply.reclaim.report import ReclaimReport

Yes = Annotated[bool, typer.Option("--yes", help="Delete the files (without it: a dry run).")]
Leftovers = Annotated[
    bool,
    typer.Option("--leftovers", help="Only files left by killed processes; lists all files."),
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
    from retention.views.reclaim import reclaim_entry, reclaim_text

    instant = warehouse.clock()
    if unlisted and tags:
        raise UsageError("unlisted streams have no tags: leave out --tag or --unlisted")
    names = (
        warehouse.chosen_unlisted(streams or ())
        if unlisted
        else chosen_streams(warehouse, streams, tags, warehouse.reclaimable())
    )
    if not names:
        say("there is no stream to reclaim from")
        return
    with progress(settings, "reclaiming", len(names), _reclaimed) as watch:
        reclaiming = warehouse.reclaim_leftovers if leftovers else warehouse.reclaim
        dry_run = reclaiming(names, watch)
        outcomes = dry_run.apply() if yes else dry_run.plan
    put_outcomes(settings, outcomes, instant, reclaim_text, reclaim_entry)
    if not yes and any(outcome.value and outcome.value.going for outcome in outcomes):
        say("nothing was deleted; repeat it with --yes")
    finish(outcomes, 0 if unlisted else say_unlisted(warehouse, streams, tags).exit_code)


def _reclaimed(report: ReclaimReport) -> str:
    verb = "deleted" if report.is_done else "would delete"
    return f"{verb} {counted(report.total.files, 'file')}"
