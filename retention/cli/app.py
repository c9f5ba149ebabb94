"""The application of the command `retention`: its global options, and errors as one sentence with an exit code."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

import traceback
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from retention.cli.output import say
from retention.cli.settings import OF_EXPORTS, Format, Settings
from retention.core.outcomes import ENDINGS, exit_code_of, sentence_of
from retention.core.units import SECOND, parse_duration
from retention.doctor.build_version import version_and_build
from retention.errors import UsageError

_WITH_VALUE = ("--warehouse", "--config", "--engine", "--format", "--wait")
_FLAGS = ("--debug",)
_ORDER = (
    *(
        "init",
        "adopt",
        "validate",
        "publish",
        "import",
        "export",
        "mirror",
        "sync",
        "simulate",
        "plan",
        "apply",
    ),
    *(
        "purge",
        "delete",
        "delete-segments",
        "drop",
        "erase",
        "undo",
        "restore",
        "repair",
        "compact",
    ),
    *("reclaim", "verify", "hold", "pause", "resume"),
    *(
        "explain",
        "messages",
        "view",
        "state",
        "consumer",
        "offset",
        "kv",
        "stats",
        "history",
        "report",
        "doctor",
    ),
    *("effective", "package", "airflow"),
)


class Commands(TyperGroup):
    """Commands that accept global options anywhere, and report errors as sentences."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Treat global options after the command like those before it."""
        return super().parse_args(ctx, options_first(args))

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order in which users need them."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; report an error in one sentence, with its exit code."""
        try:
            return super().invoke(ctx)
        except (Abort, Exit, TyperException, BrokenPipeError):
            raise
        except ENDINGS as error:
            if ctx.params.get("debug"):
                say(traceback.format_exc().rstrip())
            say(sentence_of(error))
            raise Exit(exit_code_of(error)) from error


app = typer.Typer(
    cls=Commands,
    name="retention",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  (typer calls it so)
    if wanted:
        typer.echo(version_and_build())
        raise Exit(0)


@app.callback()
def options(
    ctx: typer.Context,
    warehouse: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The warehouse: a directory or s3://bucket/prefix."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The configuration. Default: ./retention.yaml."),
    ] = None,
    engine: Annotated[
        Literal["auto", "spark", "local"] | None,
        typer.Option(help="The engine; overrides the configuration."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="The format of results.")] = "table",
    wait: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Wait this long for another run on a stream."),
    ] = "0s",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print the version and the build.",
        ),
    ] = False,
) -> None:
    """Apply a broker's retention rules to message streams in a lakehouse: plan, explain, apply, undo.

    These options may stand before or after the command.
    """
    if warehouse is not None and config is not None:
        raise UsageError(
            "--warehouse and --config exclude each other: the configuration names its warehouse"
        )
    wait_s, command = parse_duration(wait) / SECOND, ctx.invoked_subcommand or ""
    if form in OF_EXPORTS and command != "history":
        raise UsageError(
            f"--format {form} belongs to `retention history export`: write table, json or jsonl"
        )
    ctx.obj = Settings(warehouse or config, engine, form, debug, wait_s, command)


def options_first(arguments: list[str]) -> list[str]:
    """The arguments reordered, with all global options before the others, up to a `--`."""
    until = arguments.index("--") if "--" in arguments else len(arguments)
    first: list[str] = []
    others: list[str] = []
    rest = iter(arguments[:until])
    for argument in rest:
        if argument in _WITH_VALUE:
            value = next(rest, None)
            first += [argument] if value is None else [argument, value]
        elif argument in _FLAGS or argument.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            first.append(argument)
        else:
            others.append(argument)
    return [*first, *others, *arguments[until:]]
