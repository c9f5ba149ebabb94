"""Commands that write: publish, import."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from retention.cli.arguments import OneStream
from retention.cli.output import finish, put_json, put_lines
from retention.cli.progress import progress
from retention.cli.settings import Settings, settings_of
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.publish import Published


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(publish)


def publish(
    ctx: typer.Context,
    stream: OneStream,
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="JSON lines; - is standard input.")] = "-",
    writer: Annotated[str | None, typer.Option(metavar="W", help="With --batch: exactly once.")] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="Rises with every batch of the writer.")
    ] = None,
) -> None:
    """Publish JSON lines as one batch: {"subject", "data" or "data_b64", "headers", "ts_ns"}."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.stream import opened_lines

    source: AbstractContextManager[IO[bytes]] = (
        nullcontext(sys.stdin.buffer) if file == "-" else opened_lines(Path(file))
    )
    with source as lines:
        published = warehouse.new_stream(stream).publish(lines, writer, batch)
    if settings.format == "table":
        put_lines([_sentence(published, batch)])
    else:
        acks = _acks(published, batch)
        put_json(settings, acks, acks)


def _acks(published: Published, batch: int | None) -> list[dict[str, Any]]:
    if published.appended.duplicate:
        return [{"stream": published.stream, "batch": batch, "duplicate": True}]
    return [vars(ack) for ack in published.acks()]


def _sentence(published: Published, batch: int | None) -> str:
    stored = published.appended
    if stored.duplicate:
        return f"{published.stream}: batch {batch} was there already; nothing was written"
    if not stored.messages:
        return f"{published.stream}: nothing was new; nothing was written"
    return f"{published.stream}: {stored.messages:,} messages stored as {stored.first_seq:,} to {stored.last_seq:,}"
