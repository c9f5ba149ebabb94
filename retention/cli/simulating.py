"""The command that asks what a policy would keep: simulate."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, OneStream
from retention.cli.output import put_json, put_lines
from retention.cli.settings import settings_of
from retention.errors import ConfigError, UsageError

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A limit as retention.yaml has it (max_age=0: none); may be repeated.",
    ),
]
PolicyFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy", metavar="FILE", help="A policy: YAML with limits only; may be repeated."
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="The instant of a pass; may be repeated. Default: now, now+7d and now+30d.",
    ),
]


@app.command()
def simulate(
    ctx: typer.Context,
    stream: OneStream,
    settings_of_one: Set = None,
    policies: PolicyFiles = None,
    at: At = None,
    growth: Annotated[
        str,
        typer.Option(metavar="G", help="What is stored from now on: none, history, or N/day."),
    ] = "none",
    exact: Annotated[
        bool, typer.Option("--exact", help="Read rows: exact numbers instead of bounds.")
    ] = False,
    as_of: AsOf = None,
) -> None:
    """Show what policies would keep, now and later, beside the configured one; change nothing."""
    settings = settings_of(ctx)
    variants, changes = _of_files(policies or []), dict(map(setting_of, settings_of_one or ()))
    from retention.plan.simulation import SIMULATED_AT
    from retention.views.text_simulation import simulation_rows, simulation_text

    warehouse = settings.open()
    held = warehouse.table(stream) if stream in warehouse.tables() else warehouse.log(stream)
    simulation = held.simulate(variants, at or SIMULATED_AT, growth, as_of, exact=exact, **changes)
    if settings.format == "table":
        put_lines(simulation_text(simulation))
    else:
        put_json(settings, simulation.as_json(), [*simulation_rows(simulation)])


def setting_of(text: str) -> tuple[str, Any]:
    """The key and value of `--set`; the value is read as YAML."""
    from retention.config.document import read_document

    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(f"--set {text}: is not KEY=VALUE; write, for instance, --set max_age=7d")
    try:
        return key, read_document(f"--set {key}", f"[{value}]".encode()).values[0]
    except (ConfigError, IndexError) as error:
        raise UsageError(f"--set {text}: the value cannot be read; quote it as in YAML") from error


def _of_files(places: list[Path]) -> dict[str, dict[str, Any]]:
    """The policies in files, by the names of the files without their endings."""
    from retention.config.document import read_document

    policies: dict[str, dict[str, Any]] = {}
    for place in places:
        document = read_document(place)
        if document.mistakes or not isinstance(document.values, dict):
            raise UsageError(
                f"{place}: is not a policy; write limits as in retention.yaml, such as max_age: 7d, a line each"
            )
        if place.stem in policies:
            raise UsageError(f"{place}: two policies have the name {place.stem}; rename a file")
        policies[place.stem] = document.values
    return policies
