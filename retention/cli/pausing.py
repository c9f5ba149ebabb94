"""The commands that stop removals and allow them again: pause, resume."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import complete_stream
from retention.cli.output import put_json, put_lines
from retention.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from retention.stores.pauses import Pause

Named = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STREAM",
        show_default=False,
        autocompletion=complete_stream,
        help="Names of streams and tables. Default: the whole warehouse, with those to come.",
    ),
]
Reason = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", help="Kept on record; that of a pause is part of each refusal."
    ),
]


@app.command()
def pause(ctx: typer.Context, reason: Reason, streams: Named = None) -> None:
    """Stop all removals until resumed, and wait for runs in progress."""
    settings = settings_of(ctx)
    paused = settings.open().pause(streams or None, reason=reason)
    _put(settings, paused, "removals are paused")


@app.command()
def resume(ctx: typer.Context, reason: Reason, streams: Named = None) -> None:
    """Allow removals again."""
    settings = settings_of(ctx)
    ended = settings.open().resume(streams or None, reason=reason)
    _put(settings, ended, "removals are resumed")


def _put(settings: Settings, pauses: Iterable[Pause], verb: str) -> None:
    from retention.views.text_pause import pause_line

    entries = [each.as_json() for each in pauses]
    if settings.format == "table":
        put_lines(pause_line(each, verb) for each in pauses)
    else:
        put_json(settings, entries, entries)
