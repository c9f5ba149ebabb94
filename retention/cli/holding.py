"""The commands on legal holds: hold add, hold ls, hold release."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Streams, complete_stream
from retention.cli.output import put_json, put_report, put_table
from retention.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from retention.stores.holds import Hold

holds = typer.Typer(help="Keep messages whatever would remove them.", no_args_is_help=True)
app.add_typer(holds, name="hold")

StreamOrTable = Annotated[
    str,
    typer.Argument(metavar="STREAM|TABLE", show_default=False, autocompletion=complete_stream),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept on record.")]
_HEAD = ("STREAM", "HOLD", "COVERS", "UNTIL", "OWNER", "REASON")


@holds.command()
def add(
    ctx: typer.Context,
    stream: StreamOrTable,
    reason: Reason,
    subject: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only matching subjects: * is one token, > the rest."),
    ] = None,
    from_seq: Annotated[
        int | None, typer.Option(metavar="N", help="The lowest sequence or offset.")
    ] = None,
    to_seq: Annotated[
        int | None, typer.Option(metavar="N", help="The highest sequence or offset.")
    ] = None,
    from_time: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Stored at this time or later.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Stored before this time.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=VALUE,…", help="Of a table: rows with these values."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The person or case to ask about it.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The time at which it ends. Default: when released."),
    ] = None,
) -> None:
    """Place a legal hold: nothing removes the messages or rows that match all options, present or future."""
    settings = settings_of(ctx)
    warehouse, values = settings.open(), None
    if key is not None:
        from retention.tables.holds import parse_held_key

        values = parse_held_key(warehouse.table(stream).opened, key)
    placed = warehouse.hold(
        stream,
        reason=reason,
        subject=subject,
        from_seq=from_seq,
        to_seq=to_seq,
        from_time=from_time,
        to_time=to_time,
        key=values,
        owner=owner,
        until=until,
    )
    _put(settings, [placed])


@holds.command("ls")
def list_holds(
    ctx: typer.Context,
    streams: Streams = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="Also those that were released or have expired.")
    ] = False,
) -> None:
    """List the legal holds in effect."""
    settings = settings_of(ctx)
    _put(settings, settings.open().holds(streams or None, ended=ended))


@holds.command()
def release(
    ctx: typer.Context,
    hold: Annotated[str, typer.Argument(metavar="HOLD", show_default=False)],
    reason: Reason,
) -> None:
    """Release a legal hold."""
    settings = settings_of(ctx)
    _put(settings, [settings.open().release_hold(hold, reason=reason)])


def _put(settings: Settings, listed: Sequence[Hold]) -> None:
    from retention.views.text_hold import after_runs_text, hold_row

    if settings.format == "table":
        put_table(_HEAD, map(hold_row, listed))
        put_report([line for hold in listed for line in after_runs_text(hold)])
    else:
        entries = [hold.as_json() for hold in listed]
        put_json(settings, entries, entries)
