"""The command that proves that what is stored is what was written: verify."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Streams, Tags
from retention.cli.output import TableOutcomes, chosen_with_tables, finish, put_outcomes
from retention.cli.progress import progress
from retention.cli.settings import settings_of

if TYPE_CHECKING:
    pass

Sample = Annotated[
    str | None,
    typer.Option(
        "--sample", metavar="SHARE", help="Read only this share of each stream's files, such as 1%."
    ),
]
Record = Annotated[
    bool, typer.Option("--record", help="Record the digests of intact files that have none.")
]


@app.command()
def verify(
    ctx: typer.Context,
    streams: Streams = None,
    tags: Tags = None,
    sample: Sample = None,
    record: Record = False,
) -> None:
    """Verify files, logs and records against each other. Names a remedy for each finding."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.verify.finding import exit_code_of_findings
    from retention.views.text_verify import (
        table_verification_entry,
        verdict_clause,
        verification_entry,
        verification_text,
    )

    instant = warehouse.clock()
    names, tables = chosen_with_tables(warehouse, streams, tags)
    chosen = [*names, *tables]
    with progress(settings, "verifying", len(chosen), verdict_clause) as watch:
        every = (
            warehouse.verify(chosen, sample=sample, record=record, watch=watch) if chosen else []
        )
    of_streams = [outcome for outcome in every if outcome.stream not in tables]
    of_tables = [outcome for outcome in every if outcome.stream in tables]
    shown = TableOutcomes.of(warehouse, of_tables, verification_text, table_verification_entry)
    put_outcomes(settings, of_streams, instant, verification_text, verification_entry, shown)
    finish(every, exit_code_of_findings(each.value for each in every))
