"""Commands that mend a stream which no pass goes on with: each says what it would do, and does it with --yes."""

from __future__ import annotations

import typer

repair = typer.Typer(
    help="Mend a stream that no pass goes on with; dry unless --yes.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(repair, name="repair")
