"""The state of a warehouse as text and HTML: its streams and tables, the most urgent first if there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from retention.core.display import readable_instant
from retention.core.markup import MOST_ROWS, card, escape, table, text_table
from retention.inspect.lag import table_lag, urgency
from retention.inspect.state import State
from retention.views.text import states_text
from retention.views.text_states import STATE_NUMBERS, state_notes, state_table
from retention.views.text_table import TABLE_HEAD, table_row

if TYPE_CHECKING:
    from retention.core.outcomes import Outcome

Head = Sequence[str]
Rows = Sequence[Sequence[str]]


def warehouse_text(outcomes: Sequence[Outcome[Any]]) -> list[str]:
    """The lines of the states."""
    lines = [
        line
        for head, rows, numbers in _tables(outcomes)
        for line in text_table(head, rows, numbers)
    ]
    return [*lines, *_notes(outcomes)] or ["no streams"]


def warehouse_html(outcomes: Sequence[Outcome[Any]]) -> str:
    """The states as HTML."""
    parts = [
        table([name.capitalize() for name in head], rows, numbers)
        for head, rows, numbers in _tables(outcomes)
    ]
    parts += [f"<div>{escape(note)}</div>" for note in _notes(outcomes)]
    states = [each.value for each in outcomes if isinstance(each.value, State)]
    aside = states_text(states) if states else "no streams"
    return card("Warehouse", aside, parts)


def _tables(outcomes: Sequence[Outcome[Any]]) -> Iterator[tuple[Head, Rows, set[int]]]:
    """The table of streams, and that of tables in place, with their columns of numbers."""
    values = [each.value for each in _ordered(outcomes) if each.value is not None]
    streams = [state for state in values if isinstance(state, State)]
    tables = [state for state in values if not isinstance(state, State)]
    if streams:
        head, rows = state_table(streams, readable_instant)
        yield head, rows, {head.index(name) for name in STATE_NUMBERS}
    if tables:
        rows = [table_row(state, readable_instant) for state in tables]
        yield TABLE_HEAD, rows, {1, 2, 3}


def _ordered(outcomes: Sequence[Outcome[Any]]) -> Sequence[Outcome[Any]]:
    if len(outcomes) <= MOST_ROWS:
        return outcomes
    return sorted(outcomes, key=lambda outcome: urgency(_lag(outcome.value)))


def _lag(value: Any) -> Any:
    return value.lag if isinstance(value, State) else value and table_lag(value)


def _notes(outcomes: Sequence[Outcome[Any]]) -> list[str]:
    """The sentences about streams, and the errors of those that cannot be read."""
    states = [each.value for each in outcomes if isinstance(each.value, State)]
    errors = [each.sentence for each in outcomes if each.error is not None]
    notes = [*errors, *state_notes(states)]
    rest = len(notes) - MOST_ROWS
    return [*notes[:MOST_ROWS], *([f"and {rest:,} more notes"] if rest > 0 else [])]
