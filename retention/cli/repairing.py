"""Commands that repair a stream that passes refuse: each shows its effect, and carries it out with --yes."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, OneStream
from retention.cli.output import put_json, put_report
from retention.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from retention.api.dry_run import Mended, Repair
    from retention.api.log import Log

repair = typer.Typer(help="Repair a broken stream (dry run unless --yes).", no_args_is_help=True)
app.add_typer(repair, name="repair")

Yes = Annotated[bool, typer.Option("--yes", help="Repair the stream (without it: a dry run).")]


@repair.command()
def clock(ctx: typer.Context, stream: OneStream, as_of: AsOf = None, yes: Yes = False) -> None:
    """Reset the last applied instant after a wrong clock."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_wrong_clock(as_of), yes)


@repair.command()
def sequences(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Remove rows with impossible sequences or sizes."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_impossible_sequences(), yes)


@repair.command()
def returned(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Remove messages again that another writer restored."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_returned_messages(), yes)


@repair.command()
def lost(
    ctx: typer.Context,
    stream: OneStream,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            show_default=False,
            help="Paths as in the error. Default: all missing or damaged files.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove missing or damaged files. Their messages are given up."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_lost_files(*files or ()), yes)


@repair.command("lost-commit")
def lost_commit(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Repeat a commit overwritten in a Delta log."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_lost_commits(), yes)


@repair.command()
def place(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Continue an archive after a warehouse was moved or copied."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_place(), yes)


@repair.command()
def foreign(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Move aside files that a Parquet stream cannot adopt."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_foreign_files(), yes)


@repair.command()
def replay(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Begin a replay anew whose record is lost."""
    settings = settings_of(ctx)
    _put(settings, _log(settings, stream).repair_lost_replay(), yes)


def _log(settings: Settings, stream: str) -> Log:
    return settings.open().log(stream)


def _put(settings: Settings, repair: Repair[Mended], yes: bool) -> None:  # noqa: FBT001
    done = repair.apply() if yes else repair.plan
    if settings.format == "table":
        dry = [] if yes or not done.is_needed else ["  nothing was changed; repeat it with --yes"]
        put_report([*repair.lines(done), *dry])
    else:
        put_json(settings, done.as_json(), [done.as_json()])
