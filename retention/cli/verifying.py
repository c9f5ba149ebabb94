"""The command that proves that what is stored is what was written: verify."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Streams, Tags
from retention.cli.output import TableOutcomes, chosen_with_tables, finish, put_outcomes, say
from retention.cli.progress import progress
from retention.cli.settings import settings_of
from retention.errors import VerificationError

Sample = Annotated[
    str | None,
    typer.Option(
        "--sample", metavar="SHARE", help="Read only this share of each stream's files, such as 1%."
    ),
]
Record = Annotated[
    bool, typer.Option("--record", help="Record the digests of intact files that have none.")
]
Archive = Annotated[
    bool, typer.Option("--archive", help="Read the copies in the streams' archives, too.")
]
Heads = Annotated[
    list[str] | None,
    typer.Option(
        "--head",
        metavar="HEAD",
        help="A head from an earlier page for auditors: records up to it must be unchanged; may be repeated.",
    ),
]


@app.command()
def verify(
    ctx: typer.Context,
    streams: Streams = None,
    tags: Tags = None,
    sample: Sample = None,
    record: Record = False,
    archive: Archive = False,
    heads: Heads = None,
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
            warehouse.verify(chosen, sample=sample, record=record, archive=archive, watch=watch)
            if chosen
            else []
        )
    of_streams = [outcome for outcome in every if outcome.stream not in tables]
    of_tables = [outcome for outcome in every if outcome.stream in tables]
    shown = TableOutcomes.of(warehouse, of_tables, verification_text, table_verification_entry)
    put_outcomes(settings, of_streams, instant, verification_text, verification_entry, shown)
    unknown = warehouse.unknown_heads(heads or [], chosen)
    for head in unknown:
        say(
            f"head {head} is not in the chain of any of these histories: a record up to it was changed, removed or "
            "inserted, or `history` no longer keeps the records of that time; compare with a copy of the warehouse"
        )
    code = exit_code_of_findings(each.value for each in every)
    finish(every, VerificationError.exit_code if unknown else code)
