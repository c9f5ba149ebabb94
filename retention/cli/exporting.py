"""Commands that export: export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import OneStream
from retention.cli.output import put_json, put_lines
from retention.cli.settings import settings_of
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.inspect.nats_export import Exported

exports = typer.Typer(help="Export a stream to another system.", no_args_is_help=True)
app.add_typer(exports, name="export")


@exports.command("nats-backup")
def nats_backup(
    ctx: typer.Context,
    stream: OneStream,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The archive, and FILE.json; or a directory (a new one ends in /) for `nats stream restore`.",
        ),
    ],
) -> None:
    """Export a stream and its consumers as a NATS backup."""
    settings = settings_of(ctx)
    exported = settings.open().stream(stream).export_nats_backup(file)
    if settings.format == "table":
        put_lines([_sentence(exported)])
    else:
        put_json(settings, vars(exported), [vars(exported)])


def _sentence(exported: Exported) -> str:
    sequences = f"sequences {exported.first_seq:,} to {exported.last_seq:,}"
    held = f"{counted(exported.messages, 'message')} exported{f', {sequences}' if exported.messages else ''}"
    consumers = f", {counted(exported.consumers, 'consumer')}" if exported.consumers else ""
    return f"{exported.stream}: {held}{consumers}, to {exported.file}"
