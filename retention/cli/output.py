"""Printing: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from retention.cli.settings import Settings
from retention.config.discovery import no_own_streams, no_streams
from retention.core.outcomes import Outcome, exit_code
from retention.errors.printable import sentence, visible, visible_json

if TYPE_CHECKING:
    from retention.api.unlisted import UnlistedFinding
    from retention.api.warehouse import Warehouse

Value = TypeVar("Value")
Of = TypeVar("Of")

MOST_BLOCKS = 20
"""The maximum number of streams with lines of their own; beyond it, identical ones are summed up."""
_WIDE = 10_000
_GAP = 2


def say(text: str) -> None:
    """Print a line for users on standard error; it is never part of a result."""
    typer.echo(sentence(text), err=True)


def put_event(line: str) -> None:
    """Print an event, a line of JSON, on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def chosen_streams(
    warehouse: Warehouse,
    named: Sequence[str] | None,
    tags: Sequence[str] | None = None,
    among: Iterable[str] | None = None,
) -> list[str]:
    """The streams to act on, as from `Warehouse.chosen`; an empty warehouse is reported.

    Raises:
        UsageError: there is no warehouse, or a pattern or tag matches nothing.
    """
    names = warehouse.chosen(named or (), tags or (), among)
    _say_empty(warehouse, names, among)
    return names


def chosen_with_tables(
    warehouse: Warehouse,
    named: Sequence[str] | None,
    tags: Sequence[str] | None = None,
    among: Iterable[str] | None = None,
) -> tuple[list[str], list[str]]:
    """The streams and tables to act on, as from `Warehouse.chosen_with_tables`; an empty warehouse is reported.

    Raises:
        UsageError: there is no warehouse, or a pattern or tag matches nothing.
    """
    names, tables = warehouse.chosen_with_tables(named or (), tags or (), among)
    if not tables:
        _say_empty(warehouse, names, among)
    return names, tables


def _say_empty(warehouse: Warehouse, names: Sequence[str], among: Iterable[str] | None) -> None:
    if not names and not warehouse.streams():
        say(no_streams(warehouse.location))
    elif not names and among is None:
        say(no_own_streams(warehouse.location))


def put_lines(lines: Iterable[str]) -> None:
    """Print lines of text as a result, one at a time: no name in them controls the terminal."""
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)


def put_json_lines(lines: Iterable[str]) -> None:
    """Print lines of JSON as a result, one at a time."""
    sys.stdout.writelines(f"{visible_json(line)}\n" for line in lines)


def put_report(lines: Iterable[str]) -> None:
    """Print lines as a result; those without indentation are headings."""
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


@dataclass(frozen=True)
class TableOutcomes(Generic[Of]):
    """The outcomes of tables, beside those of streams."""

    outcomes: Sequence[Outcome[Of]]
    lines: Callable[[Of], Iterable[str]]
    """Makes the text of a value; a failed table has none."""
    entry: Callable[[Outcome[Of]], Any]
    """Makes the JSON values of an outcome."""

    @classmethod
    def of(
        cls,
        warehouse: Warehouse,
        outcomes: Sequence[Outcome[Of]],
        lines: Callable[[Of], Iterable[str]],
        entry: Callable[[Outcome[Of]], Any],
    ) -> TableOutcomes[Of] | None:
        """The outcomes of a warehouse's tables; None: its configuration lists none."""
        return cls(outcomes, lines, entry) if warehouse.tables() else None

    def blocks(self) -> Iterator[tuple[str, list[str]]]:
        """The lines of each table."""
        for outcome in self.outcomes:
            if outcome.value is not None:
                yield outcome.stream, [*self.lines(outcome.value)]

    def entries(self) -> list[Any]:
        """The JSON values of each table."""
        return [self.entry(outcome) for outcome in self.outcomes]


def put_outcomes(
    settings: Settings,
    outcomes: Sequence[Outcome[Value]],
    instant: int,
    lines: Callable[[Value], Iterable[str]],
    entry: Callable[[Outcome[Value]], Any],
    tables: TableOutcomes[Any] | None = None,
) -> None:
    """Print the outcome of every stream and table.

    Args:
        settings: the format to print in.
        outcomes: one for each stream.
        instant: nanoseconds since the epoch, for all of them.
        lines: makes the text of a value; a failed stream has none.
        entry: makes the JSON values of an outcome.
        tables: the outcomes of tables; None: the command knows none, or the configuration lists none.
    """
    if settings.format == "table":
        blocks = [
            (outcome.stream, [*lines(outcome.value)]) for outcome in outcomes if outcome.value
        ]
        blocks += () if tables is None else tables.blocks()
        put_report(line for block in _summed_up(blocks) for line in block)
        return
    from retention.history.report import document

    entries = [entry(outcome) for outcome in outcomes]
    of_tables = None if tables is None else tables.entries()
    put_json(settings, document(instant, entries, of_tables), [*entries, *(of_tables or ())])


def _summed_up(blocks: Sequence[tuple[str, list[str]]]) -> Iterator[Sequence[str]]:
    """The blocks of streams; if there are many, those with the same single line share one line at the end."""
    alike: dict[str, list[str]] = {}
    for stream, block in blocks:
        [first, *others] = block
        same = first.removeprefix(f"{stream}: ")
        if len(blocks) <= MOST_BLOCKS or others or same == first:
            yield block
        else:
            alike.setdefault(same, []).append(stream)
    for text, (stream, *others) in alike.items():
        yield [f"{stream}{f' and {len(others):,} more' if others else ''}: {text}"]


def put_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table within the terminal's width, or within `COLUMNS`.

    Args:
        head: the names of the columns.
        rows: a cell for each.
        right: columns of numbers.
        spare: columns that may be omitted, in this order, while the table is too wide.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Output that is not shown on a terminal must not be cut to a width.
    is_bounded = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = Console(width=None if is_bounded else _WIDE)
    cells = [tuple(map(visible, row)) for row in rows]
    for left_out in ((), *(spare[: count + 1] for count in range(len(spare)))):
        kept = [number for number, name in enumerate(head) if name not in left_out]
        if _width(head, cells, kept) <= console.width:
            break
    else:
        put_report(_upright(head, cells))
        return
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in (head[number] for number in kept):
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(row[number]) for number in kept))
    with console.capture() as captured:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _width(head: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    """The width of the columns with these numbers, in cells of a terminal."""
    from rich.cells import cell_len

    columns = [list(column) for column in zip(head, *rows, strict=True)]
    widths = (max(map(cell_len, columns[number])) for number in kept)
    return sum(widths) + _GAP * len(kept)


def _upright(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows of a table that is too wide: the first cell of each as its heading, the others below it."""
    width = max(map(len, head))
    for first, *others in rows:
        yield first
        pairs = zip(head[1:], others, strict=True)
        yield from (f"  {name:<{width}}  {cell}" for name, cell in pairs if cell)


def say_unlisted(
    warehouse: Warehouse, named: Sequence[str] | None, tags: Sequence[str] | None = None
) -> UnlistedFinding:
    """Report the streams that no configuration lists any more, as `unlisted` of the configuration says."""
    from retention.api.unlisted import unlisted_finding

    finding = unlisted_finding(warehouse, named or (), tags or ())
    if finding.sentence:
        say(finding.sentence)
    return finding


def finish(outcomes: Sequence[Outcome[Any]], otherwise: int = 0) -> None:
    """Print the errors of the outcomes, and end with their common exit code, or with `otherwise` without errors."""
    for outcome in outcomes:
        if outcome.error is not None:
            say(outcome.sentence)
    code = exit_code(outcomes) or otherwise
    if code:
        raise typer.Exit(code)
