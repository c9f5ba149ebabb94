"""Commands on a topic's stored offsets: offset store, get, delete, ls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retention.cli.app import app
from retention.cli.arguments import OnePartition, OneTopic
from retention.cli.output import put_json, put_lines, put_table
from retention.cli.settings import Settings, settings_of
from retention.core.units import format_instant

if TYPE_CHECKING:
    from retention.inspect.offsets import OffsetInfo

offsets = typer.Typer(
    help="Store, show and delete the offsets of a topic's readers.", no_args_is_help=True
)
app.add_typer(offsets, name="offset")

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A consumer's name, or a server's number; a group has a number.",
        show_default=False,
    ),
]
Kind = Annotated[Literal["consumer", "group"], typer.Option(help="The kind of reader.")]
_HEAD = ("PARTITION", "KIND", "NUMBER", "OFFSET", "LAG", "STORED")
_NUMBERS = (_HEAD[0], *_HEAD[2:5])


@offsets.command()
def store(
    ctx: typer.Context,
    topic: OneTopic,
    partition: OnePartition,
    name: Name,
    offset: Annotated[
        int,
        typer.Argument(
            metavar="OFFSET", help="The offset of the last message read.", show_default=False
        ),
    ],
    kind: Kind = "consumer",
) -> None:
    """Store a reader's offset."""
    settings = settings_of(ctx)
    _put(settings, settings.open().topic(topic).store_offset(partition, kind, name, offset))


@offsets.command()
def get(
    ctx: typer.Context,
    topic: OneTopic,
    partition: OnePartition,
    name: Name,
    kind: Kind = "consumer",
) -> None:
    """Show a reader's offset."""
    settings = settings_of(ctx)
    _put(settings, settings.open().topic(topic).get_offset(partition, kind, name))


@offsets.command()
def delete(
    ctx: typer.Context,
    topic: OneTopic,
    partition: OnePartition,
    name: Name,
    kind: Kind = "consumer",
) -> None:
    """Delete a reader's offset; it protects no message any more."""
    settings = settings_of(ctx)
    settings.open().topic(topic).delete_offset(partition, kind, name)
    if settings.format == "table":
        put_lines([f"{topic}: the offset of {kind} {name} in partition {partition} was deleted"])
        return
    document = {
        "stream": topic,
        "partition": partition,
        "kind": kind,
        "name": name,
        "deleted": True,
    }
    put_json(settings, document, [document])


@offsets.command("ls")
def list_offsets(ctx: typer.Context, topic: OneTopic) -> None:
    """List readers, by Iggy's numbers, and their offsets; `offset get` finds a consumer by its name, too."""
    settings = settings_of(ctx)
    infos = settings.open().topic(topic).offsets()
    if settings.format == "table":
        put_table(_HEAD, map(_row, infos), right=_NUMBERS)
        return
    entries = [info.as_json() for info in infos]
    put_json(settings, entries, entries)


def _put(settings: Settings, info: OffsetInfo) -> None:
    if settings.format == "table":
        put_table(_HEAD, [_row(info)], right=_NUMBERS)
    else:
        put_json(settings, info.as_json(), [info.as_json()])


def _row(info: OffsetInfo) -> tuple[str, ...]:
    numbers = (f"{info.offset:,}", f"{info.lag:,}")
    return (str(info.partition), info.kind, info.name, *numbers, format_instant(info.stored_ns))
