"""Commands that write: publish, import."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from retention.cli.app import app
from retention.cli.arguments import AnyTime, OneStream
from retention.cli.output import finish, put_json, put_lines, say
from retention.cli.progress import progress
from retention.cli.settings import settings_of
from retention.config.discovery import unlisted_stream
from retention.core.outcomes import act_sequentially, failure_entry
from retention.core.wording import counted
from retention.errors import UsageError
from retention.storage.outputs import OutputKind, begins, check_output, write_output

if TYPE_CHECKING:
    from retention.formats.jsonl import LeaveOut, Line, SkippedLine
    from retention.ingest.import_nats import Imported
    from retention.ingest.published import Published
    from retention.ingest.topics.import_log import TopicImported


REJECTS_FILE = OutputKind("refused lines", begins(r'\{"line": \d+, "error": '))
"""The file of `publish --rejects`."""
Era = Literal["0.8", "0.9"]
"""The versions of Iggy's servers from which a log can come."""

imports = typer.Typer(help="Import a NATS backup or an Iggy log.", no_args_is_help=True)
app.add_typer(imports, name="import")


@app.command()
def publish(
    ctx: typer.Context,
    stream: OneStream,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="JSON lines; - is standard input.")
    ] = "-",
    writer: Annotated[
        str | None, typer.Option(metavar="W", help="The writer's name; with --batch: exactly once.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The batch number; one not above the writer's last stores nothing."
        ),
    ] = None,
    rejects: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write refused lines there; publish the others."),
    ] = None,
    any_time: AnyTime = False,
) -> None:
    """Publish JSON lines as one batch.

    To a stream: {"subject", "data" or "data_b64", "headers", "ts_ns"}.

    To a topic: {"data" or "data_b64", "partition" or "key", "headers", "id", "origin_ts_ns"}.
    """
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.formats.jsonl import open_lines

    is_new = not warehouse.has(stream)
    with open_lines(sys.stdin.buffer if file == "-" else Path(file)) as source:
        lines, leave_out = (source, None) if rejects is None else _kept(source, Path(rejects))
        published = warehouse.new_stream(stream).publish(
            lines, writer, batch, leave_out, any_time=any_time
        )
    if is_new:
        say(unlisted_stream(stream, warehouse.streams()))
    if settings.format == "table":
        put_lines([_sentence(published, batch)])
    else:
        acks = _acks(published, batch)
        put_json(settings, acks, acks)


def _kept(lines: Iterable[Line], rejects: Path) -> tuple[list[Line], LeaveOut]:
    """The lines, and a function that writes refused ones to a file, with the reasons."""

    def leave_out(refused: list[SkippedLine]) -> None:
        entries = (_rejected(line, kept[line.line - 1]) for line in refused)
        content = "".join(f"{entry}\n" for entry in entries).encode()
        write_output(str(rejects), REJECTS_FILE, content)
        if refused:
            say(f"{len(refused):,} of {counted(len(kept), 'line')} refused and left out: {rejects}")

    check_output(str(rejects), REJECTS_FILE)
    kept = list(lines)
    return kept, leave_out


def _rejected(refused: SkippedLine, line: Any) -> str:
    text = line if isinstance(line, str) else line.decode(errors="replace")
    error = {"code": refused.code, "description": refused.reason}
    entry = {"line": refused.line, "error": error, "text": text.rstrip("\r\n")}
    return json.dumps(entry, ensure_ascii=False)


@imports.command("nats-backup")
def nats_backup(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Archives, or directories of `nats stream backup`."),
    ],
    stream: Annotated[
        str | None,
        typer.Option(
            metavar="S",
            help="The stream, of a single file. Default: the file's stem, or the name in a directory.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse a backup that lost messages while it was made."),
    ] = False,
) -> None:
    """Import NATS backups."""
    settings = settings_of(ctx)
    if stream is not None and len(files) > 1:
        raise UsageError(
            "--stream names one stream: import the files one by one, or let each name its own"
        )
    warehouse = settings.open()
    paths = {stream or _stem(file): file for file in files}
    if len(paths) < len(files):
        raise UsageError(
            "two of these files belong to the same stream: import them one by one, with --stream"
        )

    def act(name: str) -> Imported:
        return warehouse.new_stream(name).import_nats_backup(paths[name], strict=strict)

    new = [name for name in paths if not warehouse.has(name)]
    with progress(settings, "importing", len(paths), _imported) as watch:
        outcomes = act_sequentially(paths, act, warehouse.clock, watch)
    for outcome in outcomes:
        if outcome.value is not None and outcome.stream in new:
            say(unlisted_stream(outcome.stream, warehouse.streams()))
    if settings.format == "table":
        put_lines(
            f"{outcome.stream}: {_imported(outcome.value)}" for outcome in outcomes if outcome.value
        )
    else:
        entries = [
            _imported_entry(outcome.value) if outcome.value else failure_entry(outcome)
            for outcome in outcomes
        ]
        put_json(settings, entries, entries)
    finish(outcomes)


@imports.command("iggy-log")
def iggy_log(
    ctx: typer.Context,
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A server's directory streams/<id>/topics/<id>."),
    ],
    topic: Annotated[str, typer.Option(metavar="T", help="A new topic that retention.yaml lists.")],
    era: Annotated[
        Era | None, typer.Option(help="The server's version. Default: detected.")
    ] = None,
    allow_damaged: Annotated[
        bool, typer.Option("--allow-damaged", help="Leave out damaged messages.")
    ] = False,
) -> None:
    """Import a topic's directory of an Iggy server."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    taking = warehouse.topic(topic)
    imported = taking.import_iggy_log(directory, era, allow_damaged=allow_damaged)
    for finding in imported.findings:
        say(finding.sentence)
    if settings.format == "table":
        put_lines([f"{imported.stream}: {_topic_imported(imported)}"])
    else:
        findings = [finding.sentence for finding in imported.findings]
        entry = vars(imported) | {"findings": findings}
        put_json(settings, [entry], [entry])


def _topic_imported(imported: TopicImported) -> str:
    if imported.already:
        return "this directory was imported before; nothing was written"
    return f"{counted(imported.messages, 'message')} imported, in {counted(imported.partitions, 'partition')}"


def _stem(file: Path) -> str:
    """The stream that a backup names: the file's stem, or the name in a directory's metadata."""
    if not file.is_dir():
        return file.stem
    from retention.formats.nats.backup import read_backup

    return read_backup(file).name


def _imported(imported: Imported) -> str:
    if imported.already:
        return "this backup was imported before; nothing was written"
    sequences = f"sequences {imported.first_seq:,} to {imported.last_seq:,}"
    done = f"{counted(imported.messages, 'message')} imported, {sequences}"
    if not imported.differences:
        return done
    differ = "; ".join(map(str, imported.differences))
    return (
        f"{done}; imported as a server restores it, although the server's account differs: {differ}"
    )


def _imported_entry(imported: Imported) -> dict[str, Any]:
    return vars(imported) | {
        "differences": [vars(difference) for difference in imported.differences]
    }


def _acks(published: Published, batch: int | None) -> list[dict[str, Any]]:
    if published.appended.duplicate:
        return [{"stream": published.stream, "batch": batch, "duplicate": True}]
    return [ack.as_json() for ack in published.acks()]


def _sentence(published: Published, batch: int | None) -> str:
    if published.appended.duplicate:
        return f"{published.stream}: batch {batch} is already present; nothing was written"
    return f"{published.stream}: {published.summary()}"
