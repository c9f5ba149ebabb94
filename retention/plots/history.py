"""Run histories as charts: the messages kept after each run, and those that runs removed, by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retention.core.units import DAY, format_size
from retention.core.wording import counted
from retention.history.kinds import TableApplied, TableUndone, Undone
from retention.history.record import RunRecord
from retention.plots.charts import Chart, Curve, Curves, Part, Series, Stack
from retention.plots.palette import KEPT
from retention.plots.plan import LONGEST_NAME, MOST_COLUMNS
from retention.plots.wording import short_name

UNDONE = "undone"
_ENDS = 2


@dataclass(frozen=True)
class StoredNow:
    """The contents of a stream, from which those after earlier runs are counted back."""

    messages: int
    next_seq: Mapping[int, int]
    """Partition → the next sequence to assign."""
    at_ns: int
    epoch: int = 0


def history_chart(
    name: str, records: Sequence[RunRecord], stored: StoredNow | None, noun: str
) -> Chart:
    """The runs of a stream or table as a chart.

    Args:
        name: the stream or table.
        records: the outcomes of its runs, newest first.
        stored: the contents now; None: not known, so that removals alone are drawn.
        noun: `message` or `row`.
    """
    runs = [record for record in reversed(records) if record.may_count]
    removing = [record for record in runs if _removed(record)]
    undone = undone_runs(runs) & {record.run for record in removing}
    shown = short_name(name, LONGEST_NAME)
    if not removing:
        return Chart(
            f"{shown}: no run removed anything", f"{counted(len(runs), 'run')} in its history."
        )
    removed = sum(_removed(record) for record in removing if record.run not in undone)
    size = sum(record.removed_bytes for record in removing if record.run not in undone)
    aside = f"; {len(undone):,} more undone" if undone else ""
    lasting = sum(1 for record in removing if record.run not in undone)
    headline = f"{shown}: {counted(lasting, 'run')} removed {counted(removed, noun)} ({format_size(size)}){aside}"
    stack, width = removals(removing, undone)
    parts: tuple[Part, ...] = (stack,)
    kept = kept_after(runs, stored) if stored else None
    if kept is not None and len(kept.days) >= _ENDS:
        parts = (Curves((kept,), f"{noun.capitalize()}s after each run", is_stepped=True), stack)
    unit = "a day" if width == 1 else f"{width} days"
    return Chart(headline, f"Each column has the removals of {unit}, UTC.", parts)


def undone_runs(runs: Sequence[RunRecord]) -> set[str]:
    """The runs of which an undo is in effect."""
    return {record.undoes for record in runs if isinstance(record, Undone | TableUndone)}


def removals(runs: Sequence[RunRecord], undone: set[str]) -> tuple[Stack, int]:
    """The removals of runs by rule in columns of whole days, and the days of each; undone ones are a series apart."""
    days = np.array([record.as_of_ns / DAY for record in runs])
    begin = np.floor(days.min())
    width = max(1, int(np.ceil((days.max() - begin + 1e-9) / MOST_COLUMNS)))
    numbers = ((days - begin) // width).astype(np.int64)
    edges = begin + width * np.arange(numbers.max() + 2, dtype=np.float64)
    amounts: dict[str, np.ndarray] = {}
    for number, record in zip(numbers, runs, strict=True):
        by_rule = {UNDONE: _removed(record)} if record.run in undone else record.by_rule
        for rule, messages in by_rule.items():
            amounts.setdefault(rule, np.zeros(len(edges) - 1))[number] += messages
    if UNDONE in amounts:
        amounts[UNDONE] = amounts.pop(UNDONE)
    return Stack(edges, tuple(Series(*item) for item in amounts.items()), title="Removed"), width


def kept_after(runs: Sequence[RunRecord], stored: StoredNow) -> Curve:
    """The messages after each run and now, counted back from those of now by what runs removed and restored.

    Messages stored between two runs are counted by the sequences that were assigned, which records
    have; a run without them, or of an earlier epoch, has no point.
    """
    left, now = stored.messages, sum(stored.next_seq.values())
    points = [(stored.at_ns / DAY, float(left))]
    for record in reversed(runs):
        if record.epoch != stored.epoch:
            break
        if record.next_seq is not None:
            kept = left - (now - sum(record.next_seq.values()))
            points.append((record.as_of_ns / DAY, float(kept)))
        left += _removed(record) - _restored(record)
    points = sorted(point for point in points if point[1] >= 0)
    days, kept_then = (np.array([point[at] for point in points]) for at in (0, 1))
    return Curve(KEPT, days, kept_then, kept_then)


def _removed(record: RunRecord) -> int:
    return record.removed_rows if isinstance(record, TableApplied) else record.removed_messages


def _restored(record: RunRecord) -> int:
    number = getattr(record, "restored_messages", 0)
    return number if isinstance(number, int) else 0
