"""The command that makes a view of a stream for analysts: view."""

from __future__ import annotations

from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import OneStream
from retention.cli.output import put_json, put_lines, say
from retention.cli.settings import settings_of


@app.command()
def view(
    ctx: typer.Context,
    stream: OneStream,
    json: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD:TYPE",
            help="A column with a value of the JSON payload, such as total:double; may be repeated. "
            "Types: string, boolean, int, bigint, double, decimal(P,S), date, timestamp.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="The view's name: [[catalog.]schema.]view. Default: STREAM."
        ),
    ] = None,
    create: Annotated[  # noqa: FBT002  (typer makes an option of it)
        bool, typer.Option("--create", help="Make the view in the catalog of Spark's session.")
    ] = False,
) -> None:
    """Print the SQL of a view with the messages of a Delta stream."""
    settings = settings_of(ctx)
    opened = settings.open().log(stream).opened
    from retention.api.analyst_view import create_view, sql_of_view

    statement = sql_of_view(opened, name or opened.name, json or ())
    if create:
        note = create_view(statement, settings.engine)
        if note:
            say(f"{opened.name}: {note}")
    if settings.format == "table":
        put_lines(f"{statement};".splitlines())
        return
    document = {
        "stream": opened.name,
        "view": name or opened.name,
        "sql": statement,
        "created": create,
    }
    put_json(settings, document, [document])
