"""The command that shows where settings come from: effective."""

from __future__ import annotations

from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import OneStream
from retention.cli.output import put_json, put_table, say
from retention.cli.settings import settings_of


@app.command()
def effective(
    ctx: typer.Context,
    stream: OneStream,
    every: Annotated[  # noqa: FBT002  (typer makes an option of it)
        bool, typer.Option("--all", help="Also show built-in defaults.")
    ] = False,
) -> None:
    """Show a stream's settings, and where each comes from."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.config.effective import effective_settings

    opened = warehouse.log(stream).opened
    listed = effective_settings(warehouse.config, opened.config)
    if settings.format != "table":
        entries = [setting.as_json() for setting in listed]
        document = {"stream": opened.name, "file": warehouse.config.file, "settings": entries}
        put_json(settings, document, entries)
        return
    chosen = [setting for setting in listed if every or setting.is_written]
    rows = [
        (
            setting.key,
            setting.text,
            setting.source if setting.line is None else f"{setting.source}, line {setting.line}",
        )
        for setting in chosen
    ]
    put_table(("KEY", "VALUE", "FROM"), rows)
    if len(chosen) < len(listed):
        say(f"{len(listed) - len(chosen):,} more settings have built-in values: --all shows them")
