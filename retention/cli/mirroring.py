"""The command that carries messages between streams: mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Tags, complete_stream
from retention.cli.output import chosen_streams, finish, put_outcomes
from retention.cli.progress import progress
from retention.cli.settings import settings_of
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.ingest.mirror.run import Mirrored

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STREAM",
        show_default=False,
        autocompletion=complete_stream,
        help="Names or patterns. Default: all streams with a mirror or sources.",
    ),
]
StoredAt = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="The stored time of messages from sources, not in the future; mirrors keep theirs. Default: now.",
    ),
]


@app.command()
def mirror(
    ctx: typer.Context, streams: Targets = None, tags: Tags = None, as_of: StoredAt = None
) -> None:
    """Copy new messages to mirrors and streams with sources."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.ingest.mirror.origin import in_order
    from retention.views.mirror import mirror_entry, mirror_text

    chosen = chosen_streams(warehouse, streams, tags, warehouse.mirrored())
    names = in_order(warehouse.config.streams, chosen)
    instant = warehouse.instant(as_of)
    with progress(settings, "mirroring", len(names), _came) as watch:
        outcomes = warehouse.mirror(names, instant, watch) if names else []
    put_outcomes(settings, outcomes, instant, mirror_text, mirror_entry)
    finish(outcomes)


def _came(mirrored: Mirrored) -> str:
    return f"mirrored, stored {counted(mirrored.messages, 'message')}"
