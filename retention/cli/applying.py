"""Commands that change streams: apply, undo."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, Tags, complete_stream
from retention.cli.output import (
    TableOutcomes,
    chosen_with_tables,
    finish,
    put_json,
    put_lines,
    put_outcomes,
    say,
    say_unlisted,
)
from retention.cli.planning import plan_streams, plan_tables
from retention.cli.progress import progress
from retention.cli.settings import Settings, settings_of
from retention.config.selection import is_pattern
from retention.core.outcomes import Outcome, exit_code
from retention.core.wording import counted
from retention.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from retention.api.budgeted import Applied
    from retention.api.table import Table
    from retention.api.unlisted import UnlistedFinding
    from retention.api.warehouse import Warehouse
    from retention.apply.budget import Budget
    from retention.apply.guards import Guards
    from retention.history.report import RunReport
    from retention.plan.plan import Plan
    from retention.tables.plan import TablePlan
    from retention.tables.report import TableReport

Value = TypeVar("Value")
What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PLANFILE|NAME",
        show_default=False,
        autocompletion=complete_stream,
        help="A saved plan, or names and patterns ('ORDERS_*'). Default: all streams and tables.",
    ),
]
AllowFuture = Annotated[
    bool, typer.Option("--allow-future", help="Allow an instant later than the clock.")
]
AllowRewind = Annotated[
    bool, typer.Option("--allow-rewind", help="Allow an instant earlier than the last applied one.")
]
AllowLarge = Annotated[
    bool, typer.Option("--allow-large", help="Exceed the limits of `guards`, this once.")
]
MaxTime = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Start no stream after this time; with --yes."),
]
MaxBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Start no stream after reading and writing this much; with --yes."
    ),
]
MetricsFile = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Write metrics there, in Prometheus text format."),
]


@app.command()
def apply(
    ctx: typer.Context,
    what: What = None,
    tags: Tags = None,
    as_of: AsOf = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask; required without a terminal.")
    ] = False,
    max_time: MaxTime = None,
    max_bytes: MaxBytes = None,
    allow_future: AllowFuture = False,
    allow_rewind: AllowRewind = False,
    allow_large: AllowLarge = False,
    metrics_file: MetricsFile = None,
) -> None:
    """Remove messages, and rows of tables, by the rules or a saved plan."""
    if not yes and not can_ask():
        raise UsageError(
            "apply changes streams and tables, and standard input is not a terminal to ask on: repeat it with --yes"
        )
    settings, started = settings_of(ctx), time.time_ns()
    _check_metrics(metrics_file)
    warehouse = settings.open()
    from retention.apply.budget import Budget
    from retention.apply.guards import Guards

    guards = Guards(allow_future, allow_rewind, allow_large)
    budget = Budget.parsed(max_time, max_bytes)
    plans = None if tags else _saved_plans(warehouse, what or [], as_of)
    instant = warehouse.instant(as_of if plans is None else plans.as_of_ns)
    names, tables = chosen_with_tables(warehouse, what, tags) if plans is None else ([], [])
    if budget is not None and (plans is not None or not yes):
        raise UsageError(
            "a budget chooses streams while they are applied, so it shows no plan and takes none: repeat it "
            "with --yes and without a plan file, or leave out --max-time and --max-bytes"
        )
    if plans is None and yes:
        done = _applied_at_once(settings, warehouse, (names, tables), instant, (budget, guards))
    else:
        decided = plans or DecidedPlans(
            plan_streams(settings, warehouse, names, instant),
            plan_tables(settings, warehouse, tables, instant),
            instant,
        )
        if not yes and not decided.confirm("Apply?"):
            return
        done = _carried_out(settings, warehouse, decided, guards)
    _put_reports(settings, warehouse, done, instant)
    unlisted = say_unlisted(warehouse, what, tags)
    if metrics_file is not None:
        _put_metrics(metrics_file, warehouse, done, started, unlisted)
    finish([*done.streams, *done.tables], unlisted.exit_code)


@app.command()
def undo(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, as `history` names it.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the messages to restore; change nothing.")
    ] = False,
    hold: Annotated[
        str | None,
        typer.Option(
            metavar="REASON", help="Place a legal hold on the messages before they are restored."
        ),
    ] = None,
) -> None:
    """Restore the messages, or rows, that a run removed."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    table = warehouse.table_of_run(run)
    if table is not None and hold is not None:
        raise RefusedError(
            f"{table.name}: rows have no sequences by which the legal hold of an undo could name them; nothing was "
            "changed; place a legal hold with `retention hold add --key`, `--from` and `--to`, then undo"
        )
    if table is not None:
        _undo_of_table(settings, table, run, dry_run=dry_run)
        return
    if dry_run:
        _show_undo(settings, run)
        return
    record = settings.open().undo(run, hold=hold)
    if settings.format == "table":
        messages = counted(record["restored_messages"], "message")
        restored = f"{record['stream']}: restored {messages} (run {record['run']})"
        put_lines([restored, *_removed_again(record)])
    else:
        put_json(settings, record, [record])


def _undo_of_table(settings: Settings, table: Table, run: str, *, dry_run: bool) -> None:
    shown = table.show_undo(run) if dry_run else table.undo(run).as_json()
    if settings.format != "table":
        put_json(settings, shown, [shown])
        return
    rows = counted(shown["restored_rows"], "row")
    done = f"would restore {rows}" if dry_run else f"restored {rows} (run {shown['run']})"
    again = "the next pass under the same limits removes these rows again"
    put_lines([f"{table.name}: {done}", *([f"  {again}"] if table.removes_again(run) else [])])


def _show_undo(settings: Settings, run: str) -> None:

    shown = settings.open().show_undo(run)
    if settings.format != "table":
        put_json(settings, shown, [shown])
        return
    how = "rewriting" if shown["rewritten"] else "with"
    messages, files = (
        counted(shown["restored_messages"], "message"),
        counted(shown["files"], "file"),
    )
    put_lines(
        [f"{shown['stream']}: would restore {messages}, {how} {files}", *_removed_again(shown)]
    )


def _removed_again(undone: Mapping[str, Any]) -> list[str]:
    """The line about messages of an undone run that the next pass removes again."""
    again = undone["removed_again"]
    return [] if again is None else [f"  {again['sentence']}"]


def can_ask() -> bool:
    """Whether standard input is a terminal, so that a person can answer."""
    return sys.stdin.isatty()


def _saved_plans(
    warehouse: Warehouse, what: Sequence[str], as_of: str | None
) -> DecidedPlans | None:
    """The plans in a plan file; None: streams or tables are named."""
    known = {*warehouse.streams(), *warehouse.tables()} if what else set()
    files = [
        name
        for name in what
        if name not in known and (_is_file(name) or (len(what) == 1 and not is_pattern(name)))
    ]
    if not files:
        return None
    if len(what) > 1:
        raise UsageError(
            f"{files[0]}: a plan file is applied alone; name streams in a second command"
        )
    if as_of is not None:
        raise UsageError("a saved plan has its own instant: leave out --as-of, or name streams")
    from retention.api.plan_files import load

    plans, tables = load(files[0])
    return DecidedPlans(
        [Outcome(plan.header.stream, plan) for plan in plans],
        [Outcome(plan.table, plan) for plan in tables],
        plans[0].header.as_of_ns if plans else tables[0].as_of_ns,
    )


@dataclass(frozen=True)
class DecidedPlans:
    """The plans to carry out; a stream or table that could not be planned is failed."""

    streams: Sequence[Outcome[Plan]]
    tables: Sequence[Outcome[TablePlan]]
    as_of_ns: int

    def confirm(self, question: str) -> bool:
        """Show the plans and ask for confirmation; plans that change nothing need none."""
        from retention.views.text_table import table_plan_text

        plans = [outcome.value for outcome in self.tables if outcome.value is not None]
        for plan in plans:
            for line in table_plan_text(plan):
                say(line)
        return confirm_plans(self.streams, question, also=any(not each.is_empty for each in plans))


def _applied_at_once(
    settings: Settings,
    warehouse: Warehouse,
    names: tuple[Sequence[str], Sequence[str]],
    instant: int,
    terms: tuple[Budget | None, Guards],
) -> Applied:
    """Plan and apply passes over streams, then over tables; within a budget the most overdue first."""
    from retention.api.budgeted import Applied, apply_within

    (streams, tables), (budget, guards) = names, terms
    if budget is not None:
        with progress(settings, "applying", len(streams) + len(tables), _applied) as watch:
            return apply_within(warehouse, [*streams, *tables], instant, budget, guards, watch)
    outcomes: list[Outcome[RunReport]] = []
    of_tables: list[Outcome[TableReport]] = []
    if streams or not tables:
        with progress(settings, "applying", len(streams), _applied) as watch:
            outcomes = warehouse.apply(streams, instant, guards, watch)
    if tables:
        with progress(settings, "applying", len(tables), _applied) as watch:
            of_tables = warehouse.apply_tables(tables, instant, guards, watch)
    return Applied(outcomes, of_tables)


def confirm_plans(decided: Sequence[Outcome[Plan]], question: str, *, also: bool = False) -> bool:
    """Show plans and ask for confirmation; plans that change nothing need none.

    Args:
        decided: the plans.
        question: asks for the confirmation.
        also: whether other plans, shown already, change something.
    """
    from retention.views.text import plan_text

    plans = [outcome.value for outcome in decided if outcome.value is not None]
    for plan in plans:
        for line in plan_text(plan):
            say(line)
    changes = also or any(not plan.is_empty for plan in plans)
    if not changes or typer.confirm(question, err=True):
        return True
    say("nothing was changed")
    return False


def _carried_out(
    settings: Settings, warehouse: Warehouse, decided: DecidedPlans, guards: Guards
) -> Applied:
    """Apply exactly these plans; a stream or table that could not be planned remains failed."""
    from retention.api.budgeted import Applied

    plans = [outcome.value for outcome in decided.streams if outcome.value is not None]
    tables = [outcome.value for outcome in decided.tables if outcome.value is not None]
    with progress(settings, "applying", len(plans), _applied) as watch:
        done = warehouse.apply_plans(plans, guards, watch) if plans else []
    with progress(settings, "applying", len(tables), _applied) as watch:
        of_tables = warehouse.apply_table_plans(tables, guards, watch) if tables else []
    return Applied(_of_all(decided.streams, done), _of_all(decided.tables, of_tables))


def _of_all(
    decided: Sequence[Outcome[Any]], done: Sequence[Outcome[Value]]
) -> list[Outcome[Value]]:
    """The outcome of each plan, or the error of what could not be planned."""
    by_name = {outcome.stream: outcome for outcome in done}
    return [
        by_name.get(outcome.stream) or Outcome(outcome.stream, error=outcome.error)
        for outcome in decided
    ]


def _put_reports(settings: Settings, warehouse: Warehouse, done: Applied, instant: int) -> None:
    from retention.views.json_entries import report_entry, table_report_entry
    from retention.views.left import left_text
    from retention.views.text import report_text
    from retention.views.text_guards import passed_guards
    from retention.views.text_table import table_report_text

    shown = TableOutcomes.of(warehouse, done.tables, table_report_text, table_report_entry)
    put_outcomes(settings, done.streams, instant, report_text, report_entry, shown)
    passed = [*passed_guards(done.streams), *passed_guards(done.tables)]
    for text in filter(None, [*passed, left_text(done.streams, done.tables)]):
        say(text)


def _check_metrics(path: str | None) -> None:
    """Refuse a metrics file that would replace other content."""
    if path is not None:
        from retention.storage.outputs import check_output
        from retention.views.metrics import METRICS_FILE

        check_output(path, METRICS_FILE)


def _put_metrics(
    path: str,
    warehouse: Warehouse,
    done: Applied,
    started: int,
    unlisted: UnlistedFinding,
) -> None:
    from retention.api.metrics import write_metrics
    from retention.views.metrics import CommandRun

    code = exit_code([*done.streams, *done.tables]) or unlisted.exit_code
    ended = time.time_ns()
    run = CommandRun(
        "apply", started, ended, code, done.streams, done.tables, unlisted=unlisted.names
    )
    write_metrics(path, run, warehouse, say)


def _applied(report: RunReport | TableReport) -> str:
    if report.is_left:
        return "left for the next run"
    from retention.history.report import RunReport

    if isinstance(report, RunReport):
        return f"applied, removed {counted(report.removed_messages, 'message')}"
    return f"applied, removed {counted(report.removed_rows, 'row')}"


def _is_file(name: str) -> bool:
    return "://" in name or Path(name).exists()
