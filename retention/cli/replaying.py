"""The command that asks what a server would have held: replay."""

from __future__ import annotations

from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import OneStream
from retention.cli.output import put_json, put_lines
from retention.cli.settings import settings_of
from retention.cli.simulating import setting_of


@app.command()
def replay(
    ctx: typer.Context,
    stream: OneStream,
    settings_of_one: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A limit instead of the configured one (max_age=0: none); may be repeated.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at", metavar="TIME", help="An instant to look at; may be repeated. Default: now."
        ),
    ] = None,
    seqs: Annotated[
        list[int] | None,
        typer.Option("--seq", metavar="SEQ", help="Tell the fate of a message; may be repeated."),
    ] = None,
) -> None:
    """Publish a stream's messages again, in thought: what a server with these limits would have held, and when."""
    settings = settings_of(ctx)
    changes = dict(map(setting_of, settings_of_one or ()))
    from retention.context.topic import refuse_topic
    from retention.views.text_replay import fate_rows, replay_text

    log = settings.open().stream(stream)
    refuse_topic(log.opened.config, "whose server removes whole segments", "say simulate instead")
    replayed = log.replay(at or (None,), **changes)
    if settings.format == "table":
        put_lines(replay_text(replayed, seqs or ()))
    elif settings.format == "json":
        fates = [replayed.fate(seq) for seq in seqs or ()]
        put_json(settings, replayed.as_json() | ({"fates": fates} if fates else {}), [])
    else:
        put_json(settings, None, [*fate_rows(replayed, seqs or ())])
