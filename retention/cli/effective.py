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
    """Show the settings of a stream or table, and where each comes from."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.config.effective import effective_settings, effective_table_settings

    config = warehouse.config
    if stream in warehouse.tables():
        named = {"table": stream}
        listed = effective_table_settings(config, warehouse.table(stream).config)
    else:
        opened = warehouse.log(stream).opened
        named = {"stream": opened.name}
        listed = effective_settings(config, opened.config)
    if settings.format != "table":
        entries = [setting.as_json() for setting in listed]
        put_json(settings, {**named, "file": config.file, "settings": entries}, entries)
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
