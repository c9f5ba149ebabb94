"""The command that adopts a table of another owner: adopt."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path, PurePosixPath
from time import time_ns
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.applying import can_ask
from retention.cli.output import put_json, put_lines
from retention.cli.settings import Settings, settings_of
from retention.config.discovery import CONFIG_NAME
from retention.core.units import DAY
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.inspect.adopt import TableLook
    from retention.inspect.time_guess import TimeCandidate

_AGES = (30 * DAY, 90 * DAY)
"""The limits of age whose effect is shown."""


@app.command()
def adopt(
    ctx: typer.Context,
    location: Annotated[
        str,
        typer.Argument(
            metavar="LOCATION",
            help="The table: a directory or s3://bucket/prefix with a Delta log, a directory of Parquet files, or "
            "catalog.schema.table as Spark knows it.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="N", help="The table's name. Default: that of its directory."),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column with the time of a row.")
    ] = None,
) -> None:
    """Look at a table, and add it to the configuration without a limit. Changes nothing else."""
    from retention.config.list_entry import add_entry
    from retention.config.table_types import is_catalog_name
    from retention.inspect.adopt import age_effect, look_at
    from retention.views.adoption import adoption_entry, effect_line, look_lines, table_entry

    settings, now_ns = settings_of(ctx), time_ns()
    look, table = look_at(_directory(settings, location), now_ns)
    if settings.format == "table":
        put_lines(look_lines(look))
    chosen = _time(look, time)
    last = location.split(".")[-1] if is_catalog_name(location) else look.location
    name = name or re.sub(r"[\s.*>/\\]", "_", PurePosixPath(last).name)
    effects = [age_effect(table, chosen, age, now_ns) for age in _AGES]
    place = _config_file(settings)
    written = replace(look, location=_in_config(location, look.location, place))
    add_entry(place, table_entry(name, written, chosen))
    if settings.format == "table":
        put_lines(effect_line(effect, look) for effect in effects)
        put_lines([*_added(name, chosen), f"table {name} is listed in {place}, without a limit"])
    else:
        document = adoption_entry(name, look, chosen, effects, place)
        put_json(settings, document, [document])


def _directory(settings: Settings, location: str) -> str:
    """The absolute location of a table; Spark is asked for that of a name in a catalog."""
    from retention.config.locations import absolute_location, refused_location
    from retention.config.table_types import is_catalog_name

    if is_catalog_name(location):
        from retention.api.catalog_names import directory_of_name

        return directory_of_name(location, settings.engine)
    why = refused_location(location)
    if why is not None:
        raise UsageError(f"{location!r} {why}")
    return absolute_location(location, "here")


def _in_config(given: str, location: str, config: str) -> str:
    """The location as the configuration has it: a name, or relative to the file if given relative to this directory."""
    from retention.config.table_types import is_catalog_name
    from retention.storage import files
    from retention.storage.places import place_of

    if is_catalog_name(given):
        return given
    is_absolute = files.is_remote(location) or Path(place_of(given)).expanduser().is_absolute()
    if is_absolute or files.is_remote(config):
        return location
    return os.path.relpath(location, Path(config).resolve().parent)


def _config_file(settings: Settings) -> str:
    """The configuration to add to; it need not exist."""
    from retention.storage import files

    if settings.path is None:
        return str(Path(CONFIG_NAME).resolve())
    file = settings.config_file
    return files.join(settings.path, CONFIG_NAME) if file is None else str(file)


def _time(look: TableLook, column: str | None) -> TimeCandidate:
    """The column with the time of a row: the one named, else the likeliest, else the user's choice among several."""
    from retention.config.table_types import format_column
    from retention.inspect.adopt import chosen_time
    from retention.inspect.time_guess import likeliest
    from retention.views.adoption import candidate_text

    if column is not None:
        return chosen_time(look, column)
    likely = likeliest(look.times)
    if len(likely) == 1:
        return likely[0]
    if not likely:
        raise UsageError(
            f"{look.location}: no column looks like the time of a row; nothing was written; name one with --time"
        )
    if can_ask():
        names = {format_column(each.path): each for each in likely}
        answer = typer.prompt(f"Which column has the time of a row ({', '.join(names)})?", err=True)
        return chosen_time(look, answer)
    listed = "; ".join(map(candidate_text, likely))
    raise UsageError(
        f"{look.location}: several columns may have the time of a row; nothing was written; name one with "
        f"--time: {listed}"
    )


def _added(name: str, time: TimeCandidate) -> list[str]:
    if time.type != "timestamp_ntz":
        return []
    return [
        f"its times have no zone, and the entry takes UTC: correct `zone` of {name} if that is wrong"
    ]
