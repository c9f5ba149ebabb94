"""Plans, reports and states of tables in place as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from retention.core.bounds import Bounds
from retention.core.units import format_size
from retention.core.wording import counted
from retention.views.text_erase import unfinished_clause
from retention.views.text_guards import guards_text, passed_guards_text
from retention.views.text_hold import expired_text, holds_clause, kept_text
from retention.views.text_pause import pause_clause
from retention.views.wording import bounds_text, brief_duration, brief_instant

if TYPE_CHECKING:
    from retention.tables.bounded_files import TableDue, TableEstimate, TableForecast
    from retention.tables.plan import TablePlan
    from retention.tables.report import TableReport
    from retention.tables.state import TableState


def table_plan_text(plan: TablePlan) -> list[str]:
    """The lines of a plan: the rows to remove, by which limit, and from how many files."""
    kept = kept_text(plan.kept_by_holds, "row")
    notes = [f"  {text}" for text in [*rows_notes(plan), *kept, *guards_text(plan.guards)]]
    instant = brief_instant(plan.as_of_ns)
    if plan.is_empty:
        return [f"{plan.table}: nothing to remove as of {instant}", *notes]
    return [
        f"{plan.table}: would remove {removed_rows_text(plan)} as of {instant}: {limits_text(plan.by_limit)}",
        f"  {files_text(plan)}; read {counted(plan.files_read, 'file')}",
        *notes,
    ]


def table_report_text(report: TableReport) -> list[str]:
    """The lines of the report of a pass."""
    plan = report.plan
    if report.is_left:
        return [f"{plan.table}: left for the next run"]
    on_hold = (*kept_text(plan.kept_by_holds, "row"), *expired_text(report.expired_holds))
    notes = [f"  {text}" for text in [*rows_notes(plan), *on_hold, *passed_guards_text(report)]]
    if not plan.removed_rows:
        return [f"{plan.table}: removed nothing as of {brief_instant(plan.as_of_ns)}", *notes]
    written = f", wrote {format_size(report.bytes_written)}" if report.bytes_written else ""
    return [
        f"{plan.table}: removed {removed_rows_text(plan)}: {limits_text(plan.by_limit)}",
        f"  {files_text(plan)}; read {counted(plan.files_read, 'file')}{written}; {report.seconds:.2f} s",
        f"  run {report.run}",
        *notes,
    ]


def table_estimate_text(bounds: TableEstimate) -> list[str]:
    """The lines of an estimate."""
    instant, removed = brief_instant(bounds.as_of_ns), bounds.removed_rows
    if not removed.upper:
        return [f"{bounds.table}: nothing to remove as of {instant}"]
    limits = ", ".join(f"{bounds_text(rows)} by {limit}" for limit, rows in bounds.by_rule.items())
    noun = "row" if removed.upper == 1 else "rows"
    return [
        f"{bounds.table}: would remove {bounds_text(removed)} {noun} as of {instant}: {limits}",
        f"  planning would read {bounds.files_read:,} of {counted(bounds.files, 'file')}",
    ]


TABLE_HEAD = ("TABLE", "ROWS", "SIZE", "FILES", "FROM", "TO", "POLICY", "LOCATION")


def table_row(state: TableState, instant: Callable[[int], str] = brief_instant) -> tuple[str, ...]:
    """The cells of a table's state, for `TABLE_HEAD`."""
    numbers = (f"{state.rows:,}", format_size(state.bytes), f"{state.files:,}")
    times = (
        "" if ts_ns is None else instant(ts_ns) for ts_ns in (state.first_ts_ns, state.last_ts_ns)
    )
    return (state.table, *numbers, *times, table_lag_text(state), state.location)


def table_due_lines(ahead: TableForecast) -> Iterator[str]:
    """The next removal and the rows by each horizon, a line each."""
    if not ahead.forecast:
        yield "nothing is removed by time alone"
        return
    now, next_ns = ahead.forecast[0], ahead.next_due_ns
    if next_ns is None:
        yield "nothing due"
    else:
        is_due = next_ns <= now.by_ns
        yield f"due now: {_due_rows(now)}" if is_due else f"next due {brief_instant(next_ns)}"
    for before, due in pairwise(ahead.forecast):
        if replace(due, by_ns=before.by_ns) != before:
            yield f"due within {brief_duration(due.by_ns - now.by_ns)}: {_due_rows(due)}"


def _due_rows(due: TableDue) -> str:
    rows = bounds_text(Bounds(due.rows_at_least, due.rows_at_most))
    return f"{rows} {'row' if rows == '1' else 'rows'}"


def table_lag_text(state: TableState) -> str:
    """The clauses for a pause of its removals, its lag as far as its log tells, its holds, and unfinished erasures."""
    paused = "" if state.paused is None else f"{pause_clause(state.paused)}: "
    return f"{paused}{_lag_clause(state)}{holds_clause(state.holds)}{unfinished_clause(state.erasures)}"


def _lag_clause(state: TableState) -> str:
    if state.due is None:
        return "nothing may be removed: `retention plan` says why"
    if not state.due.upper:
        return "up to date"
    if not state.due.lower:
        return f"at most {counted(state.due.upper, 'row')} to remove"
    return f"at least {counted(state.due.lower, 'row')} to remove"


def table_behind_text(state: TableState, now_ns: int, most_ns: int) -> str:
    """The sentence for a table that was behind its limits for longer than a time; empty if it was not.

    A table that is refused counts as behind.
    """
    if state.due is None:
        return f"{state.table}: {table_lag_text(state)}"
    behind_ns = state.behind_ns(now_ns)
    if behind_ns <= most_ns:
        return ""
    return (
        f"{state.table}: behind its limits for {brief_duration(behind_ns)}, longer than {brief_duration(most_ns)}: "
        f"{table_lag_text(state)}"
    )


def limits_text(by_limit: Mapping[str, int]) -> str:
    """The number of rows that each limit removes."""
    return ", ".join(f"{rows:,} by {limit}" for limit, rows in by_limit.items())


def removed_rows_text(plan: TablePlan) -> str:
    """The rows that a plan removes, of all rows of the table, and the bytes of whole files."""
    size = f" ({format_size(plan.removed_bytes)} in whole files)" if plan.removed_bytes else ""
    return f"{plan.removed_rows:,} of {counted(plan.rows, 'row')}{size}"


def files_text(plan: TablePlan) -> str:
    """The numbers of files that a plan drops, cuts and keeps."""
    kept = plan.files - len(plan.removals)
    return f"{len(plan.dropped):,} dropped, {len(plan.cut):,} cut, {kept:,} kept files"


def rows_notes(plan: TablePlan) -> Iterator[str]:
    """The sentences about rows without a value, or ahead of the plan's instant, and about files that stay whole."""
    rows = plan.unlimited
    for number, text in (
        (rows.without_time, "without a time: no limit of age or number removes them"),
        (rows.without_key, "without a key: max_rows_per_key does not remove them"),
        (rows.without_size, "without a size: they count as 0 bytes"),
        (rows.ahead, "later than this instant: they stay"),
    ):
        if number:
            yield f"{counted(number, 'row')} {text}"
    for reason, number in plan.passed_over.items():
        yield f"{counted(number, 'file')} kept whole: {reason.replace('_', ' ')}"
