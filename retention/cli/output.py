"""Printing: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from retention.cli.settings import Settings
from retention.outcomes import Outcome, exit_code

_WIDE = 10_000


def say(text: str) -> None:
    """Tell people something; never part of a result."""
    typer.echo(text, err=True)


def put_lines(lines: Iterable[str]) -> None:
    """Print lines as a result; numbers stand out on a terminal."""
    from rich.console import Console

    console = Console(soft_wrap=True, markup=False, emoji=False)
    for line in lines:
        console.print(line)


def put_json(settings: Settings, document: Any, items: Sequence[Any]) -> None:
    """Print a document, or its items, an object a line."""
    if settings.format == "json":
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    for item in items:
        typer.echo(json.dumps(item, ensure_ascii=False))


def put_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()
) -> None:
    """Print a table; columns named in `right` hold numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    numbers = set(right)
    for name in head:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # A table that nobody looks at must not be cut to a width that nobody has.
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def finish(outcomes: Sequence[Outcome[Any]]) -> None:
    """Say what failed and end with the exit code that the outcomes have together."""
    for outcome in outcomes:
        if outcome.error is not None:
            say(outcome.sentence)
    code = exit_code(outcomes)
    if code:
        raise typer.Exit(code)
