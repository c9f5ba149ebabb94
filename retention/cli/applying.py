"""Commands that change streams: apply, undo."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, Tags, complete_stream
from retention.cli.output import (
    chosen_streams,
    finish,
    put_json,
    put_lines,
    put_outcomes,
    say,
    say_unlisted,
)
from retention.cli.planning import plan_streams
from retention.cli.progress import progress
from retention.cli.settings import Settings, settings_of
from retention.config.selection import is_pattern
from retention.core.outcomes import Outcome, exit_code
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.api.unlisted import UnlistedFinding
    from retention.api.warehouse import Warehouse
    from retention.apply.guards import Guards
    from retention.history.report import RunReport
    from retention.plan.plan import Plan

What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PLANFILE|STREAM",
        show_default=False,
        autocompletion=complete_stream,
        help="A saved plan, or names and patterns ('ORDERS_*'). Default: all streams.",
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
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    max_time: MaxTime = None,
    max_bytes: MaxBytes = None,
    allow_future: AllowFuture = False,
    allow_rewind: AllowRewind = False,
    allow_large: AllowLarge = False,
    metrics_file: MetricsFile = None,
) -> None:
    """Remove messages by the rules or a saved plan."""
    if not yes and not can_ask():
        raise UsageError(
            "apply changes streams, and standard input is not a terminal to ask on: repeat it with --yes"
        )
    settings, started = settings_of(ctx), time.time_ns()
    _check_metrics(metrics_file)
    warehouse = settings.open()
    from retention.api.budgeted import apply_within
    from retention.apply.budget import Budget
    from retention.apply.guards import Guards

    guards = Guards(allow_future, allow_rewind, allow_large)
    budget = Budget.parsed(max_time, max_bytes)
    plans = None if tags else _saved_plans(warehouse, what or [], as_of)
    instant = warehouse.instant(plans[0].header.as_of_ns if plans else as_of)
    names = chosen_streams(warehouse, what, tags) if plans is None else []
    if budget is not None and (plans is not None or not yes):
        raise UsageError(
            "a budget chooses streams while they are applied, so it shows no plan and takes none: repeat it "
            "with --yes and without a plan file, or leave out --max-time and --max-bytes"
        )
    if plans is None and yes:
        with progress(settings, "applying", len(names), _applied) as watch:
            outcomes = (
                warehouse.apply(names, instant, guards, watch)
                if budget is None
                else apply_within(warehouse, names, instant, budget, guards, watch)
            )
    else:
        decided = (
            plan_streams(settings, warehouse, names, instant)
            if plans is None
            else [Outcome(plan.header.stream, plan) for plan in plans]
        )
        if not yes and not confirm_plans(decided, "Apply?"):
            return
        outcomes = _carried_out(settings, warehouse, decided, guards)
    _put_reports(settings, outcomes, instant)
    unlisted = say_unlisted(warehouse, what, tags)
    if metrics_file is not None:
        _put_metrics(metrics_file, warehouse, outcomes, started, unlisted)
    finish(outcomes, unlisted.exit_code)


@app.command()
def undo(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, as `history` names it.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the messages to restore; change nothing.")
    ] = False,
) -> None:
    """Restore the messages that a run removed."""
    settings = settings_of(ctx)
    if dry_run:
        _show_undo(settings, run)
        return
    record = settings.open().undo(run)
    if settings.format == "table":
        messages = counted(record["restored_messages"], "message")
        restored = f"{record['stream']}: restored {messages} (run {record['run']})"
        put_lines([restored, *_removed_again(record)])
    else:
        put_json(settings, record, [record])


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


def _saved_plans(warehouse: Warehouse, what: Sequence[str], as_of: str | None) -> list[Plan] | None:
    """The plans in a plan file; None: streams are named."""
    known = set(warehouse.streams()) if what else set()
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
    from retention.plan.planfile import load_plans

    return load_plans(files[0])


def confirm_plans(decided: Sequence[Outcome[Plan]], question: str) -> bool:
    """Show plans and ask for confirmation; plans that change nothing need none."""
    from retention.views.text import plan_text

    plans = [outcome.value for outcome in decided if outcome.value is not None]
    for plan in plans:
        for line in plan_text(plan):
            say(line)
    if all(plan.is_empty for plan in plans) or typer.confirm(question, err=True):
        return True
    say("nothing was changed")
    return False


def _carried_out(
    settings: Settings, warehouse: Warehouse, decided: Sequence[Outcome[Plan]], guards: Guards
) -> list[Outcome[RunReport]]:
    """Apply exactly these plans; a stream that could not be planned remains failed."""
    plans = [outcome.value for outcome in decided if outcome.value is not None]
    with progress(settings, "applying", len(plans), _applied) as watch:
        done = {outcome.stream: outcome for outcome in warehouse.apply_plans(plans, guards, watch)}
    return [
        done.get(outcome.stream) or Outcome(outcome.stream, error=outcome.error)
        for outcome in decided
    ]


def _put_reports(settings: Settings, outcomes: Sequence[Outcome[RunReport]], instant: int) -> None:
    from retention.views.json_entries import report_entry
    from retention.views.left import left_text
    from retention.views.text import report_text
    from retention.views.text_guards import passed_guards

    put_outcomes(settings, outcomes, instant, report_text, report_entry)
    for text in filter(None, [*passed_guards(outcomes), left_text(outcomes)]):
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
    outcomes: Sequence[Outcome[RunReport]],
    started: int,
    unlisted: UnlistedFinding,
) -> None:
    from retention.api.metrics import write_metrics
    from retention.views.metrics import CommandRun

    code = exit_code(outcomes) or unlisted.exit_code
    run = CommandRun("apply", started, time.time_ns(), code, outcomes, unlisted=unlisted.names)
    write_metrics(path, run, warehouse, say)


def _applied(report: RunReport) -> str:
    if report.is_left:
        return "left for the next run"
    return f"applied, removed {counted(report.removed_messages, 'message')}"


def _is_file(name: str) -> bool:
    return "://" in name or Path(name).exists()
