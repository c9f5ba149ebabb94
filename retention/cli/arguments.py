"""Arguments and options shared by several commands, and tab completion of the names of streams and tables."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from retention.config.discovery import CONFIG_NAME, find_config
from retention.core.bucket_names import bucket_of
from retention.core.subjects import TABLES, name_of_path
from retention.errors import RetentionError


def complete_stream(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of streams and tables that begin with `incomplete`; imports nothing heavy, empty if it cannot read them."""
    given = ctx.find_root().params
    place = given.get("warehouse") or given.get("config") or CONFIG_NAME
    names: set[str] = set()
    with suppress(RetentionError, OSError):
        config = find_config(place)
        names = {stream.name for stream in config.streams}
        names |= {table.name for table in config.tables}
        directories = Path(config.warehouse, "streams").iterdir()
        stored = [entry.name for entry in directories if entry.is_dir() and entry.name != TABLES]
        names |= {name_of_path(name) for name in stored}
    return sorted(name for name in names if name.startswith(incomplete))


def complete_bucket(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of buckets that begin with `incomplete`, from the streams that `complete_stream` finds."""
    names = (bucket_of(name) for name in complete_stream(ctx, f"KV_{incomplete}"))
    return [name for name in names if name is not None]


OneStream = Annotated[
    str, typer.Argument(metavar="STREAM", show_default=False, autocompletion=complete_stream)
]
OneTopic = Annotated[
    str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=complete_stream)
]
OnePartition = Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        show_default=False,
        autocompletion=complete_stream,
        help="Names or patterns ('a*'). Default: all topics.",
    ),
]
Streams = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STREAM",
        show_default=False,
        autocompletion=complete_stream,
        help="Names or patterns ('ORDERS_*'). Default: all streams.",
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only streams with this tag; may be repeated."),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="RFC 3339, date (UTC), now-1d, or epoch nanoseconds. Default: now.",
    ),
]
AnyTime = Annotated[
    bool,
    typer.Option(
        "--any-time",
        help="Accept times before 1990 (refused by default as another unit).",
    ),
]
Partition = Annotated[
    int | None, typer.Option(metavar="P", min=0, help="The partition; a stream has only 0.")
]
