"""States of several streams as rows of a table, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from retention.core.units import format_size
from retention.views.text import bucket_text, lag_text, state_overdue_text
from retention.views.text_clock import ahead_text
from retention.views.wording import brief_instant

if TYPE_CHECKING:
    from retention.inspect.state import State

STATE_NUMBERS = ("MESSAGES", "SIZE", "FIRST", "LAST", "SUBJECTS", "SEGMENTS")
_HEAD = ("STREAM", *STATE_NUMBERS[:4], "FROM", "TO", *STATE_NUMBERS[4:], "POLICY", "KEYS")


def state_table(
    states: Sequence[State], instant: Callable[[int], str] = brief_instant
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The names of the columns, and a row for each stream; the keys only if one is a bucket."""
    rows = [
        (
            state.stream,
            f"{state.messages:,}",
            format_size(state.bytes),
            f"{state.first_seq:,}",
            f"{state.last_seq:,}",
            "" if state.first_ts_ns is None else instant(state.first_ts_ns),
            "" if state.last_ts_ns is None else instant(state.last_ts_ns),
            f"{state.num_subjects:,}",
            f"{state.segments:,}",
            lag_text(state),
            bucket_text(state.bucket) if state.bucket else "",
        )
        for state in states
    ]
    width = len(_HEAD) if any(state.bucket for state in states) else len(_HEAD) - 1
    return _HEAD[:width], [row[:width] for row in rows]


def state_notes(states: Sequence[State]) -> Iterator[str]:
    """The sentences about old messages, and about those later than the clock."""
    for state in states:
        if old := state_overdue_text(state):
            yield f"{state.stream}: {old}"
    for state in states:
        for line in ahead_text(state.stream, state.ahead):
            yield f"{state.stream}: {line}"
