"""The report of a warehouse as a page: a row for each stream and table, worst first, and details of the worst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from retention.core.units import format_size
from retention.core.wording import capitalized, counted, kinds_counted
from retention.errors import UsageError
from retention.inspect.log_report import LogReport, Overview
from retention.inspect.run_summary import RunSummary, amount_of, kind_text
from retention.inspect.state import State
from retention.plots.charts import Chart
from retention.plots.draw import draw
from retention.storage.outputs import OutputKind, begins
from retention.tables.state import TableState
from retention.views.page import (
    Html,
    begins_with,
    code,
    folded,
    instant,
    items,
    muted,
    name,
    numbers,
    page,
    sentence,
    table,
    text,
)
from retention.views.text import lag_text, state_overdue_text
from retention.views.text_clock import ahead_text
from retention.views.text_forecast import due_lines
from retention.views.text_protected import protected_text
from retention.views.text_table import table_due_lines, table_lag_text
from retention.views.text_topic import PARTITION_HEAD, partition_rows
from retention.views.wording import brief_duration, brief_instant

KIND = "retention report"
PAGE_FILE = OutputKind("a report page", begins(begins_with(KIND)))
MOST_ROWS = 1_000
"""The streams and tables that a page lists; the most urgent ones."""
_MOST_OPEN = 50
"""The rows above the details; the others are folded."""
_HEAD = ("Name", "Stored", "Size", "Behind", "Due now", "Last pass", "Removed then")
_MOST_RUNS = 15
_MOST_CONSUMERS = 20


@dataclass(frozen=True)
class Section:
    """A stream or table in detail, with its pictures."""

    report: LogReport
    charts: Sequence[Chart] = ()


@dataclass(frozen=True)
class WarehouseReport:
    """Everything that a report says, before it is a page or Markdown."""

    location: str
    as_of_ns: int
    overviews: Sequence[Overview]
    """All streams and tables, the most urgent first."""
    sections: Sequence[Section] = ()
    chart: Chart | None = None
    """The streams by lag and size; None: there is only one."""
    summary: str = ""
    """The summary of the job that the report is about; empty: of none."""

    @property
    def title(self) -> str:
        """Its title."""
        named = [each.name for each in self.overviews]
        return f"Retention of {named[0] if len(named) == 1 else self.location}"

    @property
    def headline(self) -> str:
        """Its main numbers, in a sentence."""
        behind = sum(1 for each in self.overviews if each.behind_ns)
        failed = sum(1 for each in self.overviews if each.error)
        size = format_size(sum(each.bytes for each in self.overviews))
        kinds = kinds_counted([each.kind for each in self.overviews])
        parts = [f"{kinds} ({size})", f"{behind:,} behind the policy"]
        parts += [f"{failed:,} failed"] if failed else []
        return ", ".join(parts)


def report_page(report: WarehouseReport) -> Iterator[str]:
    """The report as a page, in pieces; without the extra `plots` it has no pictures, and says so."""
    yield from page(KIND, report.title, _body(report))


def lag_of(overview: Overview) -> str:
    """The lag of a row in a word."""
    if overview.behind_ns is None:
        return "unknown"
    return brief_duration(overview.behind_ns) if overview.behind_ns else "none"


def removed_by(run: RunSummary | None) -> str:
    """The amounts that a run removed by each rule; empty if it removed none."""
    rules = {} if run is None else run.record.by_rule
    return ", ".join(f"{number:,} by {rule}" for rule, number in rules.items())


def _body(report: WarehouseReport) -> Iterator[str]:
    yield f"<h1>{name(report.title)}</h1>\n"
    yield muted(f"As of {brief_instant(report.as_of_ns)}. Warehouse {report.location}.")
    if report.summary:
        yield f"<p>{sentence(report.summary)}</p>\n"
    pictures = _Pictures()
    if len(report.overviews) != 1:
        yield f"<p><b>{text(report.headline)}</b></p>\n"
        yield from pictures.drawn([] if report.chart is None else [report.chart])
        yield from _rows(report)
    for section in report.sections:
        yield from _section(section, pictures)
    if not report.overviews:
        yield muted("There is nothing to report: the configuration lists no stream.")


def _rows(report: WarehouseReport) -> Iterator[str]:
    detailed = {section.report.overview.name: at for at, section in enumerate(report.sections)}
    shown = report.overviews[:MOST_ROWS]
    if shown:
        yield from table(_HEAD, (_row(each, detailed) for each in shown[:_MOST_OPEN]), _HEAD[1:5])
    if len(shown) > _MOST_OPEN:
        rest = (_row(each, detailed) for each in shown[_MOST_OPEN:])
        yield from folded(
            f"{len(shown) - _MOST_OPEN:,} less urgent ones", table(_HEAD, rest, _HEAD[1:5])
        )
    rest_of_all = len(report.overviews) - len(shown)
    if rest_of_all:
        yield muted(
            f"{rest_of_all:,} more are less urgent and not listed: `retention state` lists all."
        )
    if len(report.sections) < len(report.overviews):
        yield muted(
            f"Details follow for the {counted(len(report.sections), 'most urgent one', 'most urgent ones')}."
        )


def _row(each: Overview, detailed: Mapping[str, int]) -> tuple[str, ...]:
    shown: Html = name(each.name)
    if each.name in detailed:
        shown = Html(f'<a href="#s{detailed[each.name]}">{shown}</a>')
    if each.error:
        return shown, "", "", "", "", "", Html(f'<span class="bad">{sentence(each.error)}</span>')
    lag = lag_of(each)
    return (
        shown,
        counted(each.amount, each.noun),
        format_size(each.bytes),
        Html(f'<span class="{"bad" if each.behind_ns != 0 else "good"}">{lag}</span>'),
        f"{each.due:,}" if each.due else "",
        "" if each.last is None else instant(each.last.record.as_of_ns),
        removed_by(each.last),
    )


def _section(section: Section, pictures: _Pictures) -> Iterator[str]:
    report, overview = section.report, section.report.overview
    yield f'<h2 id="s{pictures.next_section()}">{name(overview.name)}</h2>\n'
    yield muted(f"{overview.kind.capitalize()}. {capitalized(report.policy)}")
    for problem in (overview.error, *report.refused):
        if problem:
            yield f'<p class="bad">{sentence(problem)}</p>\n'
    yield from _now(report)
    yield from pictures.drawn(section.charts)
    yield from _last(overview)
    yield from _undos(report)
    yield from _consumers(report)
    yield from _largest(report)
    yield from _runs(report)


def _now(report: LogReport) -> Iterator[str]:
    state, overview = report.state, report.overview
    if state is None:
        return
    parts = [
        (f"{overview.amount:,}", f"{overview.noun}s stored"),
        (format_size(overview.bytes), "size"),
    ]
    parts.append((lag_of(overview), "behind the policy"))
    if isinstance(state, State):
        parts.append((f"{state.num_subjects:,}", "subjects"))
        parts.append((f"{state.segments:,}", f"segments ({state.format})"))
    else:
        parts.append((f"{state.files:,}", "files"))
    yield numbers(parts)
    yield items(_facts(state))


def _facts(state: State | TableState) -> Iterator[str]:
    if state.first_ts_ns is not None and state.last_ts_ns is not None:
        yield f"Stored from {brief_instant(state.first_ts_ns)} to {brief_instant(state.last_ts_ns)}."
    if isinstance(state, TableState):
        yield f"Location {state.location}, version {state.version}."
        yield capitalized(table_lag_text(state))
        yield from map(capitalized, table_due_lines(state.ahead))
        return
    yield capitalized(lag_text(state))
    yield from map(capitalized, due_lines(state.forecast) or ["nothing is removed by time alone"])
    if old := state_overdue_text(state):
        yield capitalized(old)
    yield from ahead_text(state.stream, state.ahead)


def _last(overview: Overview) -> Iterator[str]:
    run = overview.last
    yield "<h3>Last pass</h3>\n"
    if run is None:
        yield muted("No pass has been applied yet.")
        return
    record = run.record
    undone = f" It was undone by {run.undone_by}." if run.undone_by else ""
    yield f"<p>{code(run.run)} as of {brief_instant(record.as_of_ns)}, run by {text(run.who)}.{text(undone)}</p>\n"
    parts = [] if run.before is None else [(f"{run.before:,}", f"{overview.noun}s before")]
    parts.append((f"{run.removed:,}", f"removed ({format_size(record.removed_bytes)})"))
    if run.after is not None:
        size = "" if record.kept_bytes is None else f" ({format_size(record.kept_bytes)})"
        parts.append((f"{run.after:,}", f"{overview.noun}s after{size}"))
    yield numbers(parts)
    rules = [(rule, f"{number:,}") for rule, number in record.by_rule.items()]
    if rules:
        yield from table(("Rule", "Removed"), rules, ("Removed",))
    yield items(_of_run(run))


def _of_run(run: RunSummary) -> Iterator[str]:
    """The cost of a run, the guards that it exceeded, its approval, and what else is recorded."""
    record = run.record
    unit = "segments" if "rewritten" in run.parts else "files"
    if run.parts:
        yield ", ".join(f"{number:,} {word}" for word, number in run.parts.items()) + f" {unit}"
    cost = [] if run.files_read is None else [f"read {counted(run.files_read, 'file')}"]
    cost += [] if not record.bytes_read else [f"{format_size(record.bytes_read)} read"]
    cost += [] if not record.bytes_written else [f"{format_size(record.bytes_written)} written"]
    cost += [] if run.seconds is None else [f"{run.seconds:.2f} s"]
    if cost:
        yield "Cost: " + ", ".join(cost)
    for finding in run.guards:
        why = "lifted by a person" if finding.get("lifted") else "only a warning"
        yield f"Guard: the pass {finding.get('sentence')} ({why})"
    if reason := getattr(record, "reason", None):
        yield f"Refusals were lifted, because: {reason}"
    if approval := getattr(record, "approval", None):
        yield f"Approved: report {approval.digest[:12]} of run {approval.run}"
    if record.archived is not None:
        yield f"{counted(record.archived.files, 'file')} copied first: {record.archived.manifest}"
    held = getattr(record, "held", None)
    if isinstance(held, Mapping):
        yield from protected_text(held)


def _undos(report: LogReport) -> Iterator[str]:
    if report.undos:
        yield "<h3>Undo</h3>\n"
        yield items(offer.sentence for offer in report.undos)


def _consumers(report: LogReport) -> Iterator[str]:
    held = [] if report.plan is None else protected_text(report.plan.held_as_json)
    if not report.consumers and not held:
        return
    yield "<h3>Consumers</h3>\n"
    yield items(held)
    order = sorted(report.consumers, key=lambda each: -each.num_pending - each.num_ack_pending)
    if order:
        head = ("Consumer", "Not delivered", "Not acknowledged", "Acknowledged up to")
        rows = (
            (
                name(each.name),
                f"{each.num_pending:,}",
                f"{each.num_ack_pending:,}",
                f"{each.ack_floor.get('stream_seq', 0):,}",
            )
            for each in order[:_MOST_CONSUMERS]
        )
        yield from table(head, rows, head[1:])
    if len(order) > _MOST_CONSUMERS:
        yield muted(f"{len(order) - _MOST_CONSUMERS:,} more are not shown.")


def _largest(report: LogReport) -> Iterator[str]:
    state = report.state
    if isinstance(state, State) and state.topic is not None:
        head = [column.capitalize() for column in PARTITION_HEAD]
        yield "<h3>Partitions</h3>\n"
        yield from table(head, partition_rows(state.topic), head)
    elif report.largest is None and report.overview.kind == "table":
        yield muted("The largest keys are not counted: only the rows have them.")
    elif report.largest is None:
        yield muted(
            "The largest subjects are not listed: there are too many subjects to count in memory."
        )
    elif report.largest:
        yield "<h3>Largest subjects</h3>\n"
        rows = ((name(each.subject), f"{each.messages:,}") for each in report.largest)
        yield from table(("Subject", "Messages"), rows, ("Messages",))


def _runs(report: LogReport) -> Iterator[str]:
    if not report.runs:
        return
    noun = report.overview.noun
    yield "<h3>Runs</h3>\n"
    head = ("Run", "What", "As of", f"{noun.capitalize()}s", "Size", "Left", "Rules")
    yield from table(head, map(_run_row, report.runs[:_MOST_RUNS]), head[3:6])
    rest = len(report.runs) - _MOST_RUNS
    if rest > 0:
        yield muted(f"{rest:,} earlier runs: `retention history` lists them.")


def _run_row(run: RunSummary) -> tuple[str, ...]:
    record = run.record
    change, size = amount_of(record)
    what = kind_text(record) + (", undone" if run.undone_by else "")
    return (
        run.run,
        what,
        instant(record.as_of_ns),
        f"{change:+,}" if change else "0",
        format_size(size) if size else "",
        "" if run.after is None else f"{run.after:,}",
        removed_by(run),
    )


class _Pictures:
    """The pictures of a page; without the extra, the page says once that it has none."""

    def __init__(self) -> None:
        self._is_missing = False
        self._sections = 0

    def next_section(self) -> int:
        self._sections += 1
        return self._sections - 1

    def drawn(self, charts: Sequence[Chart]) -> Iterator[str]:
        if self._is_missing or not charts:
            return
        try:
            figures = [f"<figure>{draw(chart).inline}</figure>\n" for chart in charts]
        except UsageError as error:
            self._is_missing = True
            yield muted(f"This report has no pictures: {error}.")
            return
        yield f'<div class="pictures">{"".join(figures)}</div>\n'
