"""The command `history`: the runs of streams and tables, one of them in detail, and all their removals."""

# ruff: noqa: PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Tags, complete_stream
from retention.cli.history_export import ExportOptions, export_history
from retention.cli.output import (
    chosen_with_tables,
    put_json,
    put_json_lines,
    put_lines,
    put_report,
    put_table,
    say,
)
from retention.cli.settings import OF_EXPORTS, Settings, settings_of
from retention.core.run_names import parse_run_name
from retention.core.units import format_instant, format_size
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.api.table import Table
    from retention.history.record import RunRecord
    from retention.inspect.run_details import RunDetails

_SHOW = "show"
_EXPORT = "export"


@app.command()
def history(
    ctx: typer.Context,
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STREAM]... | show RUN | export [STREAM]...",
            show_default=False,
            help="Streams (default: all); or one run in detail; or an export of all runs.",
            autocompletion=complete_stream,
        ),
    ] = None,
    tags: Tags = None,
    messages: Annotated[  # noqa: FBT002  (typer makes an option of it)
        bool,
        typer.Option("--messages", help="With show: also list every removed message."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="With export: only runs begun at or after this."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="With export: only runs begun before this."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="With export: the file to write. Default: standard output.",
        ),
    ] = None,
) -> None:
    """List runs, newest first; show or export them."""
    settings, names = settings_of(ctx), streams or []
    bounds = ExportOptions(since, until, output)
    if _is_export(settings, names, bounds):
        export_history(settings, names[1:], tags, bounds)
        return
    if _names_a_run(settings, names):
        _show(settings, names[1], messages=messages)
        return
    if messages:
        raise UsageError("--messages needs one run: write `retention history show RUN --messages`")
    warehouse = settings.open()
    listed = [*chain(*chosen_with_tables(warehouse, names, tags, warehouse.streams()))]
    if settings.format != "table":
        records = warehouse.history(listed)
        put_json(settings, records, records)
    elif runs := warehouse.runs(listed):
        _put_runs(runs)
    elif listed:
        say("no run has finished yet")


def _put_runs(runs: Sequence[RunRecord]) -> None:
    """Print the runs of streams, then those of tables."""
    from retention.history.kinds import OfTable

    of_tables = [run for run in runs if isinstance(run, OfTable)]
    of_streams = [run for run in runs if not isinstance(run, OfTable)]
    for kind, unit, some in (("STREAM", "MESSAGES", of_streams), ("TABLE", "ROWS", of_tables)):
        if some:
            head = ("RUN", kind, "WHAT", "AS OF", unit, "SIZE", "RULES")
            put_table(head, map(_run_row, some), (unit, "SIZE"))


def _is_export(settings: Settings, names: list[str], bounds: ExportOptions) -> bool:
    """Whether the first word is `export`, and not the name of a stream.

    Raises:
        UsageError: it is not, and an option of exports is given.
    """
    is_asked = bounds != ExportOptions() or settings.format in OF_EXPORTS
    if names[:1] == [_EXPORT] and (is_asked or _EXPORT not in settings.open().streams()):
        return True
    if is_asked:
        raise UsageError(
            "--from, --to, -o, --format csv, parquet and html belong to the export: write `retention history export`"
        )
    return False


def _names_a_run(settings: Settings, names: list[str]) -> bool:
    """Whether the words are `show RUN`, and not the names of two streams."""
    if len(names) != 2 or names[0] != _SHOW:  # noqa: PLR2004
        return False
    return parse_run_name(names[1]) is not None or _SHOW not in settings.open().streams()


def _show(settings: Settings, run: str, *, messages: bool) -> None:
    warehouse = settings.open()
    table = warehouse.table_of_run(run)
    if table is not None:
        _show_run_of_table(settings, table, run, messages=messages)
        return
    details = warehouse.run(run)
    if settings.format == "table":
        _show_table(details)
        if messages:
            put_lines(_message_lines(details))
    elif settings.format == "jsonl" and messages:
        from json import dumps

        put_json_lines(dumps(message, ensure_ascii=False) for message in details.messages())
    else:
        more = {"messages": list(details.messages())} if messages else {}
        put_json(settings, details.as_json() | more, [details.as_json()])


def _show_run_of_table(settings: Settings, table: Table, run: str, *, messages: bool) -> None:
    if messages:
        raise UsageError(
            f"{run}: is a run on table {table.name}, which has no messages; leave out --messages"
        )
    details = table.run(run)
    if settings.format != "table":
        put_json(settings, details.as_json(), [details.as_json()])
        return
    from retention.inspect.run_summary import amount_of, kind_text
    from retention.views.table_explanation import evidence_text

    rows, size = amount_of(details.outcome)
    unit = "row" if abs(rows) == 1 else "rows"
    amount = f"{rows:+,} {unit} ({format_size(size)})"
    put_report(
        [
            f"{run}: {kind_text(details.outcome)}, table {table.name}, {amount}",
            *(f"  {note}" for note in details.notes()),
            *([f"  {evidence_text(details.evidence)}"] if details.has_removed else []),
        ]
    )
    if details.changed:
        numbers = ("ROWS", "SIZE")
        put_table(("FILE", "WHAT", *numbers, "RULES"), details.rows(), numbers)


def _show_table(details: RunDetails) -> None:
    from retention.inspect.run_summary import amount_of, kind_text

    outcome = details.outcome
    messages, size = amount_of(outcome)
    put_report(
        [
            f"{outcome.run}: {kind_text(outcome)}, stream {details.removal.opened.name}, {messages:+,} "
            f"{'message' if abs(messages) == 1 else 'messages'} "
            f"({format_size(size)})",
            *(f"  {note}" for note in details.notes()),
        ]
    )
    rows = [
        (
            f"{loss.partition}",
            f"{loss.segment}",
            f"{loss.files:,}",
            f"{loss.messages:,}",
            "" if loss.bytes is None else format_size(loss.bytes),
            ", ".join(f"{rule} {number:,}" for rule, number in (loss.by_rule or {}).items()),
        )
        for loss in details.segments()
    ]
    if rows:
        numbers = ("PARTITION", "SEGMENT", "FILES", "MESSAGES", "SIZE")
        put_table((*numbers, "RULES"), rows, numbers)


def _message_lines(details: RunDetails) -> Iterator[str]:
    for message in details.messages():
        rules = " or ".join(message["rules"]) or "no rule"
        partition = f"{message['partition']}: " if message["partition"] else ""
        if "seq" not in message:
            first, last, number = (message[name] for name in ("first_seq", "last_seq", "messages"))
            seqs = f"{first:,}" if first == last else f"{first:,} to {last:,}"
            gone = counted(number, "message")
            yield f"{partition}{seqs:>10}  {gone} in a deleted file  {rules}"
            continue
        time = format_instant(message["ts_ns"])
        about = f"{message['subject']}  {message['size']:,} B  {rules}"
        yield f"{partition}{message['seq']:>10,}  {time:<30}  {about}"


def _run_row(record: RunRecord) -> tuple[str, ...]:
    from retention.inspect.run_summary import amount_of, kind_text
    from retention.views.wording import brief_instant

    rules = ", ".join(f"{rule} {number:,}" for rule, number in record.by_rule.items())
    messages, size = amount_of(record)
    return (
        record.run,
        record.stream or "",
        kind_text(record),
        brief_instant(record.as_of_ns),
        f"{messages:+,}" if messages else "0",
        format_size(size),
        rules,
    )
