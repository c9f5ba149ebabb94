"""The command that says where settings come from: effective."""

from __future__ import annotations

import typer

from retention.cli.arguments import OneStream
from retention.cli.output import put_json, put_table
from retention.cli.settings import settings_of


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(effective)


def effective(ctx: typer.Context, stream: OneStream) -> None:
    """Show the value of every setting of a stream, and the line, group or default that it comes from."""
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
    rows = [
        (
            setting.key,
            setting.text,
            setting.source if setting.line is None else f"{setting.source}, line {setting.line}",
        )
        for setting in listed
    ]
    put_table(("KEY", "VALUE", "FROM"), rows)
