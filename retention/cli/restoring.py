"""Commands that restore archived messages: restore."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import OneStream, Partition
from retention.cli.output import put_json, put_lines
from retention.cli.settings import settings_of
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.restore.run import Restored
    from retention.restore.select import MessageRange

_RANGE = re.compile(r"(\d*)\.\.(\d*)")


@app.command()
def restore(  # noqa: PLR0913, PLR0917  (typer makes options of parameters)
    ctx: typer.Context,
    stream: OneStream,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="ARCHIVE", help="The archive. Default: as configured."),
    ] = None,
    seq: Annotated[
        str | None,
        typer.Option(
            metavar="A..B", help="Only these sequences, both included; A.. and ..B are open."
        ),
    ] = None,
    partition: Partition = None,
    offset: Annotated[
        str | None, typer.Option(metavar="A..B", help="Only these offsets of the partition.")
    ] = None,
    new: Annotated[
        str | None,
        typer.Option("--as", metavar="NEWNAME", help="Restore into a new stream instead."),
    ] = None,
) -> None:
    """Restore removed messages from an archive."""
    from retention.engines.select import Engines
    from retention.restore.run import restore as restored

    wanted = _wanted(seq, partition, offset)
    settings = settings_of(ctx)
    warehouse = settings.open()
    opened = warehouse.new_stream(stream).opened
    into = None if new is None else warehouse.new_stream(new).opened
    with Engines(warehouse.engine) as engines:
        result = restored(opened, source, wanted, into, engines)
    if settings.format == "table":
        put_lines(_lines(result))
    else:
        put_json(settings, result.as_json(), [result.as_json()])


def _wanted(seq: str | None, partition: int | None, offset: str | None) -> MessageRange:
    from retention.restore.select import MessageRange

    if offset is not None and (seq is not None or partition is None):
        raise UsageError(
            "--offset needs --partition and excludes --seq: an offset belongs to a partition"
        )
    text = seq if offset is None else offset
    if text is None:
        return MessageRange(partition)
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a range: write A..B, both included; A.. and ..B are open"
        )
    first, last = (int(end) if end else None for end in match.groups())
    open_ended = MessageRange(partition)
    wanted = MessageRange(
        partition,
        open_ended.first if first is None else first,
        open_ended.last if last is None else last,
    )
    if wanted.first > wanted.last:
        raise UsageError(f"{text}: ends before it begins; write the lower one first")
    return wanted


def _lines(result: Restored) -> Iterator[str]:
    yield from _restored_lines(result)
    if result.left_out:
        from retention.restore.left_out import some_of

        yield (
            f"  left out, since no commit of this table leads there: {some_of(result.left_out)}; --from MANIFEST --as "
            "NEWNAME restores such a history"
        )


def _restored_lines(result: Restored) -> Iterator[str]:
    from retention.core.units import format_size

    there = f"; {counted(result.already, 'message')} already present" if result.already else ""
    if result.run is None:
        yield f"{result.stream}: nothing to restore{there}"
        return
    size = format_size(result.bytes)
    yield f"{result.stream}: restored {counted(result.messages, 'message')} ({size}) from {result.source}{there}"
    yield f"  run {result.run}"
    if result.expires_again is None:
        yield "  no pass can be planned now, so it is unknown what the next one would remove again"
    elif result.expires_again:
        rules = ", ".join(f"{number:,} by {rule}" for rule, number in result.expires_again.items())
        yield f"  the next pass would remove of these: {rules}; change the rules first to keep them"
