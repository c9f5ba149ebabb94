"""Printing: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import typer

from retention.cli.settings import Settings
from retention.core.outcomes import Outcome, exit_code
from retention.errors.printable import sentence, visible, visible_json

Value = TypeVar("Value")

_WIDE = 10_000
_GAP = 2


def say(text: str) -> None:
    """Print a line for people on standard error; it is never part of a result."""
    typer.echo(sentence(text), err=True)


def put_lines(lines: Iterable[str]) -> None:
    """Print lines as a result, as they come, for people: no name in them steers the terminal."""
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)


def put_json_lines(lines: Iterable[str]) -> None:
    """Print lines of JSON as a result, as they come."""
    sys.stdout.writelines(f"{visible_json(line)}\n" for line in lines)


def put_report(lines: Iterable[str]) -> None:
    """Print lines as a result; those that are not indented are heads."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for line in lines:
        console.print(Text(visible(line), "" if line.startswith(" ") else "bold"))


def put_json(settings: Settings, document: Any, items: Sequence[Any]) -> None:
    """Print a document as JSON, or its items as JSON lines."""
    if settings.format == "json":
        put_json_lines([json.dumps(document, indent=2, ensure_ascii=False)])
    else:
        put_json_lines(json.dumps(item, ensure_ascii=False) for item in items)


def put_outcomes(
    settings: Settings,
    outcomes: Sequence[Outcome[Value]],
    instant: int,
    lines: Callable[[Value], Iterable[str]],
    entry: Callable[[Outcome[Value]], Any],
) -> None:
    """Print the outcome of every stream.

    Args:
        settings: the format to print in.
        outcomes: one for each stream.
        instant: nanoseconds since the epoch, for all of them.
        lines: makes the text of a value, for people; a failed stream has none.
        entry: makes the JSON values of an outcome, for programs.
    """
    if settings.format == "table":
        put_report(line for outcome in outcomes if outcome.value for line in lines(outcome.value))
        return
    from retention.history.report import document

    entries = [entry(outcome) for outcome in outcomes]
    put_json(settings, document(instant, entries), entries)


def put_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> None:
    """Print a table; columns named in `right` hold numbers."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [tuple(map(visible, row)) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    for row in cells:
        table.add_row(*map(Text, row))
    # What nobody looks at must not be cut to a width that nobody has.
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    widths = (max(map(cell_len, column)) for column in zip(head, *cells, strict=True))
    if sum(widths) + _GAP * len(head) <= console.width:
        console.print(table)
    else:
        put_report(_upright(head, cells))


def _upright(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows of a table that is too wide: the first cell of each as its head, the others below it."""
    width = max(map(len, head))
    for first, *others in rows:
        yield first
        pairs = zip(head[1:], others, strict=True)
        yield from (f"  {name:<{width}}  {cell}" for name, cell in pairs if cell)


def finish(outcomes: Sequence[Outcome[Any]]) -> None:
    """Print the errors of the outcomes, and end with their common exit code."""
    for outcome in outcomes:
        if outcome.error is not None:
            say(outcome.sentence)
    code = exit_code(outcomes)
    if code:
        raise typer.Exit(code)
