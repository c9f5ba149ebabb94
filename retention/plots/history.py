"""Run histories as charts: the messages kept after each run, and those that runs removed, by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from retention.core.run_names import started_ns
from retention.core.units import DAY, format_size
from retention.core.wording import counted
from retention.history.kinds import RestoredRun, TableRun, TableUndone, Undone
from retention.history.record import RunRecord
from retention.inspect.run_summary import kept_of
from retention.plots.charts import Chart, Curve, Curves, Series, Stack
from retention.plots.palette import KEPT
from retention.plots.plan import LONGEST_NAME, MOST_COLUMNS
from retention.plots.wording import short_name

UNDONE = "undone"
_ENDS = 2


@dataclass(frozen=True)
class StoredNow:
    """The contents of a stream, from which those after earlier runs are counted back."""

    messages: int
    bytes: int
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
    drawn = removing if stored is None else [r for r in removing if r.as_of_ns <= stored.at_ns]
    ahead = len(removing) - len(drawn)
    if not drawn:
        return Chart(headline, "All of them were as of a later time than now.")
    stack, width = removals(drawn, undone)
    curves = {f"{noun.capitalize()}s": kept_after(runs, stored), "Bytes": bytes_after(runs, stored)}
    parts = [
        Curves((curve,), f"{title} after each run", is_stepped=True)
        for title, curve in curves.items()
        if np.isfinite(curve.lower).sum() >= _ENDS
    ]
    unit = "a day" if width == 1 else f"{width} days"
    caption = f"Each column has the removals of {unit}, UTC."
    if ahead:
        caption += f" Not drawn: {counted(ahead, 'run')} as of a later time than now."
    return Chart(headline, caption, (*parts, stack))


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


def kept_after(runs: Sequence[RunRecord], stored: StoredNow | None) -> Curve:
    """The messages or rows after each run and now: as recorded, else counted back from those of now.

    Records of earlier releases have no counts. Messages stored between two runs are counted by the sequences that
    were assigned, which records have; a run without them, or of an earlier epoch, has no point.

    Args:
        runs: the runs, the oldest first.
        stored: the contents now; None: not known, so that nothing is counted back.
    """
    counted_back = {} if stored is None else _counted_back(runs, stored)
    points = [(record, counted_back.get(record.run)) for record in runs]
    recorded = [
        (run, kept_of(run) if kept_of(run) is not None else number) for run, number in points
    ]
    return _curve(recorded, None if stored is None else (stored.at_ns, stored.messages))


def bytes_after(runs: Sequence[RunRecord], stored: StoredNow | None) -> Curve:
    """The bytes after each run, as recorded, and now; a gap begins at a run that changed them and did not count."""
    points = [(record, record.kept_bytes) for record in runs]
    return _curve(points, None if stored is None else (stored.at_ns, stored.bytes))


def _curve(points: Sequence[tuple[RunRecord, int | None]], now: tuple[int, int] | None) -> Curve:
    """The numbers after runs until now, with NaN after a run that changed an unknown number."""
    shown = [
        (_instant(record) / DAY, np.nan if number is None else float(number))
        for record, number in points
        if number is not None or _removed(record) or _restored(record)
    ]
    if now is not None:
        shown = [point for point in shown if point[0] <= now[0] / DAY]
        shown.append((now[0] / DAY, float(now[1])))
    shown.sort(key=itemgetter(0))
    days, numbers = (np.array([point[at] for point in shown]) for at in (0, 1))
    return Curve(KEPT, days, numbers, numbers)


def _counted_back(runs: Sequence[RunRecord], stored: StoredNow) -> dict[str, int]:
    """Run → the messages after it."""
    kept, left, now = dict[str, int](), stored.messages, sum(stored.next_seq.values())
    for record in reversed(runs):
        if record.epoch != stored.epoch:
            break
        if record.next_seq is not None:
            number = left - (now - sum(record.next_seq.values()))
            if number >= 0:
                kept[record.run] = number
        left += _removed(record) - _restored(record)
    return kept


def _instant(record: RunRecord) -> int:
    """The instant of a run; an undo has that of the undone run, so its name has its own."""
    is_undo = isinstance(record, Undone)
    return started_ns(record.run, record.as_of_ns) if is_undo else record.as_of_ns


def _removed(record: RunRecord) -> int:
    return record.removed_rows if isinstance(record, TableRun) else record.removed_messages


def _restored(record: RunRecord) -> int:
    if isinstance(record, Undone | RestoredRun):
        return record.restored_messages
    return record.restored_rows if isinstance(record, TableUndone) else 0
