"""Commands that decide and act: plan, apply, undo."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.arguments import AsOf, Streams, complete_stream
from retention.cli.output import finish, put_json, put_lines, put_report, say
from retention.cli.progress import progress
from retention.cli.settings import Settings, settings_of
from retention.errors import RefusedError, UsageError
from retention.outcomes import Outcome

if TYPE_CHECKING:
    from retention.estimate import Estimate
    from retention.guards import Guards
    from retention.plan import Plan
    from retention.report import Report
    from retention.warehouse import Warehouse

_WOULD_CHANGE = 3


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (plan, apply, undo):
        app.command()(command)


def plan(
    ctx: typer.Context,
    streams: Streams = None,
    as_of: AsOf = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Save the plan, for `apply FILE`."),
    ] = None,
    code: Annotated[
        bool, typer.Option("--exit-code", help="End with 3 if something would change.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Bounds instead of a plan; opens no data file.")
    ] = False,
) -> None:
    """Show what would go, from where, and why; changes nothing."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    instant = warehouse.instant(as_of)
    names = streams or warehouse.streams()
    if estimate:
        if output is not None or code:
            raise UsageError(
                "--estimate makes no plan: leave out -o and --exit-code, or --estimate"
            )
        _estimate(settings, warehouse, names, instant)
        return
    outcomes = _planned(settings, warehouse, names, instant)
    _note_refusals(warehouse, outcomes)
    plans = [outcome.value for outcome in outcomes if outcome.value is not None]
    if output is not None:
        from retention.planfile import save_plans

        save_plans(str(output), plans)
        say(
            f"saved {len(plans)} of {len(outcomes)} plans: `retention apply {output}` carries out exactly these"
        )
    _put_plans(settings, outcomes, instant)
    finish(outcomes)
    if code and not all(one.is_empty for one in plans):
        raise typer.Exit(_WOULD_CHANGE)


def apply(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PLANFILE | STREAM...]",
            show_default=False,
            autocompletion=complete_stream,
            help="A saved plan, or streams; all streams, if nothing is named.",
        ),
    ] = None,
    as_of: AsOf = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    allow_future: Annotated[
        bool, typer.Option("--allow-future", help="Let the instant be later than the clock.")
    ] = False,
    allow_rewind: Annotated[
        bool, typer.Option("--allow-rewind", help="Let it be earlier than the last applied one.")
    ] = False,
) -> None:
    """Let messages go as the rules say, or exactly as a saved plan does."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.guards import Guards

    guards = Guards(allow_future, allow_rewind)
    if not yes and not asks():
        raise UsageError(
            "apply changes streams, and nobody can be asked here: repeat it with --yes"
        )
    saved = _saved_plans(warehouse, what or [])
    if saved is not None:
        if as_of is not None:
            raise UsageError("a saved plan has its own instant: leave out --as-of, or name streams")
        instant = max((plan.as_of_ns for plan in saved), default=warehouse.clock())
        if not yes and not _agreed(saved):
            return
        outcomes = _applied(settings, warehouse, saved, guards)
    else:
        instant = warehouse.instant(as_of)
        names = what or warehouse.streams()
        if yes:
            with progress(settings, "applying", len(names), _went) as watch:
                outcomes = warehouse.apply(names, instant, guards, watch)
        else:
            asked = _asked(settings, warehouse, names, instant, guards)
            if asked is None:
                return
            outcomes = asked
    _put_reports(settings, outcomes, instant)
    finish(outcomes)


def undo(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="As `history` names it.")],
) -> None:
    """Bring back what a run removed, while its files are still there."""
    settings = settings_of(ctx)
    record = settings.open().undo(run)
    if settings.format == "table":
        put_lines(
            [
                f"{record['stream']}: {record['restored_messages']:,} messages are back (run {record['run']})"
            ]
        )
    else:
        put_json(settings, record, [record])


def asks() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _planned(
    settings: Settings, warehouse: Warehouse, names: Sequence[str], instant: int
) -> list[Outcome[Plan]]:
    with progress(settings, "planning", len(names), _would_go) as watch:
        return warehouse.plan(names, instant, watch)


def _note_refusals(warehouse: Warehouse, outcomes: Sequence[Outcome[Plan]]) -> None:
    """Say which plans `apply` would refuse for their instant: a plan may look anywhere in time."""
    from retention.guards import Guards, check_instant
    from retention.history import history_of

    for outcome in outcomes:
        if outcome.value is not None:
            opened = warehouse.stream(outcome.stream).opened
            history = history_of(warehouse.location, outcome.stream)
            for guards in (Guards(allow_rewind=True), Guards(allow_future=True)):
                try:
                    check_instant(opened, history, outcome.value.as_of_ns, guards)
                except RefusedError as refusal:
                    say(f"note, apply would refuse this plan: {refusal}")


def _saved_plans(warehouse: Warehouse, what: Sequence[str]) -> list[Plan] | None:
    """The plans of a plan file; None if streams are named."""
    known = set(warehouse.streams()) if what else set()
    files = [name for name in what if name not in known and (Path(name).exists() or len(what) == 1)]
    if not files:
        return None
    if len(what) > 1:
        raise UsageError(
            f"{files[0]}: a plan file stands alone; apply it by itself, and streams by themselves"
        )
    from retention.planfile import load_plans

    return load_plans(files[0])


def _asked(
    settings: Settings, warehouse: Warehouse, names: Sequence[str], instant: int, guards: Guards
) -> list[Outcome[Report]] | None:
    """Plan, ask, and apply exactly what was shown; None if the answer is no."""
    planned = _planned(settings, warehouse, names, instant)
    if not _agreed([outcome.value for outcome in planned if outcome.value is not None]):
        return None
    plans = [outcome.value for outcome in planned if outcome.value is not None]
    by_name = {outcome.stream: outcome for outcome in _applied(settings, warehouse, plans, guards)}
    failed = {
        one.stream: Outcome[Report](one.stream, error=one.error) for one in planned if one.error
    }
    return [(by_name | failed)[outcome.stream] for outcome in planned]


def _agreed(plans: Sequence[Plan]) -> bool:
    from retention.display import plan_text

    for one in plans:
        for line in plan_text(one):
            say(line)
    if all(one.is_empty for one in plans) or typer.confirm("Apply?", err=True):
        return True
    say("nothing was changed")
    return False


def _applied(
    settings: Settings, warehouse: Warehouse, plans: Sequence[Plan], guards: Guards
) -> list[Outcome[Report]]:
    with progress(settings, "applying", len(plans), _went) as watch:
        return warehouse.apply_plans(plans, guards, watch)


def _estimate(settings: Settings, warehouse: Warehouse, names: Sequence[str], instant: int) -> None:
    from retention.entries import estimate_entry
    from retention.estimate import estimate
    from retention.outcomes import one_by_one
    from retention.report import document

    def act(name: str) -> Estimate:
        return estimate(warehouse.stream(name).opened, instant)

    outcomes = one_by_one(names, act, warehouse.clock)
    if settings.format == "table":
        from retention.display import estimate_text

        put_report(line for one in outcomes if one.value for line in estimate_text(one.value))
    else:
        entries = [estimate_entry(outcome) for outcome in outcomes]
        put_json(settings, document(instant, entries), entries)
    finish(outcomes)


def _put_plans(settings: Settings, outcomes: Sequence[Outcome[Plan]], instant: int) -> None:
    if settings.format == "table":
        from retention.display import plan_text

        put_report(line for one in outcomes if one.value for line in plan_text(one.value))
        return
    from retention.entries import plan_entry
    from retention.report import document

    entries = [plan_entry(outcome) for outcome in outcomes]
    put_json(settings, document(instant, entries), entries)


def _put_reports(settings: Settings, outcomes: Sequence[Outcome[Report]], instant: int) -> None:
    if settings.format == "table":
        from retention.display import report_text

        put_report(line for one in outcomes if one.value for line in report_text(one.value))
        return
    from retention.entries import report_entry
    from retention.report import document

    entries = [report_entry(outcome) for outcome in outcomes]
    put_json(settings, document(instant, entries), entries)


def _would_go(plan: Plan) -> str:
    return f"planned, {plan.removed_messages:,} messages would go"


def _went(report: Report) -> str:
    return f"applied, {report.removed_messages:,} messages went"
