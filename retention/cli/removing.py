"""Commands that remove named messages: purge, delete, delete-segments, drop."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.applying import can_ask, confirm_plans
from retention.cli.arguments import OnePartition, OneStream, OneTopic
from retention.cli.output import finish, put_outcomes
from retention.cli.settings import Settings, settings_of
from retention.core.outcomes import Outcome, act_sequentially
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.history.report import RunReport
    from retention.plan.plan import Plan
    from retention.rules.requests import Request

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask; required without a terminal.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the messages to remove; change nothing.")
]


@app.command()
def purge(
    ctx: typer.Context,
    stream: OneStream,
    subject: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only matching subjects: * is one token, > the rest."),
    ] = None,
    seq: Annotated[
        int | None, typer.Option(metavar="N", help="Only messages below this sequence.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", help="Keep the newest N; not with --seq.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Remove all or some messages of a stream. `undo` restores them within the grace period."""
    from retention.rules.requests import purge_request

    request = purge_request(subject, seq, keep)
    remove(settings_of(ctx), stream, request, yes=yes, dry_run=dry_run)


@app.command()
def delete(
    ctx: typer.Context,
    stream: OneStream,
    seqs: Annotated[list[int], typer.Argument(metavar="SEQ", help="The messages' sequences.")],
    erase: Annotated[
        bool,
        typer.Option("--erase", help="Leave no copy of them, as `erase` does; cannot be undone."),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Remove single messages. `undo` restores them within the grace period."""
    from retention.rules.requests import delete_request

    if erase:
        from retention.api.erasing import DELETED
        from retention.cli.erasing import ErasureTerms, carry_out_erasure
        from retention.rules.erase import erased_messages

        carry_out_erasure(
            settings_of(ctx),
            stream,
            erased_messages((), seqs),
            ErasureTerms(DELETED, yes=yes, dry_run=dry_run),
        )
        return
    request = delete_request(seqs)
    remove(settings_of(ctx), stream, request, yes=yes, dry_run=dry_run)


@app.command()
def delete_segments(
    ctx: typer.Context,
    topic: OneTopic,
    partition: OnePartition,
    count: Annotated[
        int,
        typer.Argument(
            metavar="N",
            help="The number of segments, oldest first; 4294967295: all.",
            show_default=False,
        ),
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Remove a partition's oldest sealed segments. `undo` restores them within the grace period."""
    from retention.rules.iggy.delete_segments import delete_segments_request

    request = delete_segments_request(partition, count)
    remove(settings_of(ctx), topic, request, yes=yes, dry_run=dry_run)


@app.command()
def drop(ctx: typer.Context, stream: OneStream, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Remove a stream or topic. `undo` restores it within the grace period, until the next write.

    The next write begins a new table, with sequences from the start.
    """
    from retention.rules.requests import Drop

    remove(settings_of(ctx), stream, Drop(), yes=yes, dry_run=dry_run)


def remove(settings: Settings, name: str, request: Request, *, yes: bool, dry_run: bool) -> None:
    """Carry out a removal, or show it, or ask first.

    Raises:
        UsageError: there is no such stream, or standard input is not a terminal.
    """
    if not (yes or dry_run or can_ask()):
        raise UsageError(
            f"{request.rule} changes the stream, and standard input is not a terminal to ask on: repeat it with --yes, "
            "or look with --dry-run"
        )
    warehouse = settings.open()
    instant = warehouse.clock()
    if dry_run:
        from retention.views.json_entries import plan_entry
        from retention.views.text import plan_text

        plans = _planned(warehouse, name, request)
        put_outcomes(settings, plans, instant, plan_text, plan_entry)
        finish(plans)
        return
    done = _removed(warehouse, name, request) if yes else _after_asking(warehouse, name, request)
    if done is None:
        return
    from retention.views.json_entries import report_entry

    def lines(report: RunReport) -> Iterator[str]:
        return _report_lines(report, request)

    put_outcomes(settings, done, instant, lines, report_entry)
    finish(done)


def _planned(warehouse: Warehouse, name: str, request: Request) -> list[Outcome[Plan]]:
    from retention.engines.select import Engines
    from retention.planners.requests import plan_removal

    def act(name: str) -> Plan:
        with Engines(warehouse.engine) as engines:
            return plan_removal(warehouse.log(name).opened, request, engines).plan

    return act_sequentially([name], act, warehouse.clock)


def _removed(warehouse: Warehouse, name: str, request: Request) -> list[Outcome[RunReport]]:
    from retention.apply.requested import remove_now
    from retention.engines.select import Engines

    def act(name: str) -> RunReport:
        with Engines(warehouse.engine) as engines:
            return remove_now(warehouse.log(name).opened, request, engines)

    return act_sequentially([name], act, warehouse.clock)


def _after_asking(
    warehouse: Warehouse, name: str, request: Request
) -> list[Outcome[RunReport]] | None:
    """Show the plan, ask, and carry out exactly that plan; None: the answer is no."""
    from retention.rules.requests import Drop

    (decided,) = _planned(warehouse, name, request)
    if decided.value is None:
        return [Outcome(name, error=decided.error)]
    question = f"Drop {name}?" if request == Drop() else "Remove them?"
    if not confirm_plans([decided], question):
        return None
    return warehouse.apply_plans([decided.value])


def _meant_nothing(report: RunReport, request: Request) -> str:
    from retention.rules.iggy.delete_segments import DeleteSegments

    if isinstance(request, DeleteSegments):
        if not (report.held and report.held["segments"]):
            return "none is sealed"
        return f"no sealed segment is free; {command('offset ls', report.stream)} lists readers that have not read on"
    is_held = any((report.kept_by_holds or {}).values())
    return "legal holds keep every message that matches" if is_held else "no message matches"


def _dropped_lines(report: RunReport) -> Iterator[str]:

    yield f"{report.stream}: dropped, removed {counted(report.removed_messages, 'message')}"
    yield f"  `retention undo {report.run}` restores it within the grace period, until the next write"


def _report_lines(report: RunReport, request: Request) -> Iterator[str]:
    from retention.rules.requests import Drop, Purge
    from retention.views.text import report_text

    if isinstance(request, Drop):
        yield from _dropped_lines(report)
    elif report.removed_messages:
        yield from report_text(report)
    elif report.version_after == report.version_before:
        yield f"{report.stream}: removed nothing: {request.wording}: {_meant_nothing(report, request)}"
    else:
        begun = request == Purge()
        moved = "offsets begin at 0 again" if begun else "the next sequence has moved"
        yield f"{report.stream}: removed nothing: {request.wording}; {moved}"
