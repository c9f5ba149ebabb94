"""Commands on the consumers of a stream: consumer ls, info, add, subscribe, update, rm, fold."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retention.cli.app import app
from retention.cli.applying import can_ask
from retention.cli.arguments import AnyTime, OneStream
from retention.cli.output import put_json, put_lines, put_report, put_table, say
from retention.cli.settings import Settings, settings_of
from retention.errors import UsageError
from retention.storage.checksum import parse_json

if TYPE_CHECKING:
    from retention.api.stream_consumers import StreamConsumers
    from retention.inspect.consumers import ConsumerInfo

consumers = typer.Typer(help="Show and change the consumers of a stream.", no_args_is_help=True)
app.add_typer(consumers, name="consumer")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
File = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Other settings: JSON as `nats consumer info --json` prints it; - for input.",
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="FILTER", help="Only matching subjects; may be repeated."),
]
Ack = Annotated[
    str | None, typer.Option(metavar="POLICY", help="explicit (the default), all or none.")
]
Deliver = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="The start: all, new, last, last_per_subject.",
    ),
]
_HEAD = ("CONSUMER", "WANTS", "ACKS", "DELIVERED", "FLOOR", "PENDING", "REDELIVERED", "TO COME")


@consumers.command("ls")
def list_consumers(ctx: typer.Context, stream: OneStream) -> None:
    """List a stream's consumers and their positions."""
    settings = settings_of(ctx)
    listed = _of(settings, stream).list()
    if settings.format == "table":
        put_table(_HEAD, map(_row, listed), right=_HEAD[3:])
    else:
        entries = [consumer.as_json() for consumer in listed]
        put_json(settings, entries, entries)


@consumers.command()
def info(ctx: typer.Context, stream: OneStream, name: Name) -> None:
    """Show a consumer's configuration and position."""
    settings = settings_of(ctx)
    _put(settings, _of(settings, stream).info(name))


@consumers.command()
def add(
    ctx: typer.Context,
    stream: OneStream,
    name: Name,
    filters: Filters = None,
    ack: Ack = None,
    deliver: Deliver = None,
    file: File = None,
) -> None:
    """Create a consumer."""
    settings = settings_of(ctx)
    defaults = {"durable_name": name, "ack_policy": "explicit"}
    config = defaults | _from_file(file) | _from_options(filters, ack, deliver)
    _put(settings, _of(settings, stream).add(_named(config, name)))


@consumers.command()
def subscribe(
    ctx: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="The subject: exactly one stream stores it, or --stream names one.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The consumer; an existing one is used unchanged. Default: a generated name.",
        ),
    ] = "",
    stream: Annotated[
        str, typer.Option(metavar="STREAM", help="The stream, if several store the subject.")
    ] = "",
    file: File = None,
) -> None:
    """Find or create the consumer of a subject's stream."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    config = _from_file(file) or None
    subscription = warehouse.subscribe(subject, stream=stream, consumer=name, config=config)
    _put(settings, warehouse.stream(subscription.stream).consumers.info(subscription.name))


@consumers.command()
def update(
    ctx: typer.Context,
    stream: OneStream,
    name: Name,
    filters: Filters = None,
    file: File = None,
) -> None:
    """Change settings of a consumer; others are kept."""
    settings = settings_of(ctx)
    held = _of(settings, stream)
    config = dict(held.info(name).config)
    if filters:
        config = {key: config[key] for key in config if not key.startswith("filter_subject")}
    config |= _from_file(file) | _from_options(filters, None, None)
    _put(settings, held.update(_named(config, name)))


@consumers.command()
def rm(
    ctx: typer.Context,
    stream: OneStream,
    name: Name,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask; required without a terminal.")
    ] = False,
) -> None:
    """Delete a consumer. The next pass may remove what only it needed."""
    settings = settings_of(ctx)
    held = _of(settings, stream)
    held.require(name)
    if not yes and not _agreed(f"Delete consumer {name} of {stream}?"):
        return
    held.remove(name)
    if settings.format == "table":
        put_lines([f"{stream}: consumer {name} was deleted"])
    else:
        document = {"stream": stream, "name": name, "deleted": True}
        put_json(settings, document, [document])


@consumers.command()
def fold(
    ctx: typer.Context,
    stream: OneStream,
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG", help="JSON lines, Parquet, a directory of them, or a Delta table."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="N", help="The log's name at any location. Default: its path."),
    ] = None,
    any_time: AnyTime = False,
) -> None:
    """Fold ack logs into the consumers' states, each line once."""
    settings = settings_of(ctx)
    folded = _of(settings, stream).fold(*logs, name=name, any_time=any_time)
    from retention.views.ack_fold import folded_entry, folded_lines

    if settings.format == "table":
        put_report(line for log in folded for line in folded_lines(log))
    else:
        entries = [folded_entry(log) for log in folded]
        put_json(settings, entries, entries)


def put_consumers(listed: Sequence[ConsumerInfo]) -> None:
    """Print the consumers of several streams as a table."""
    rows = ((consumer.stream, *_row(consumer)) for consumer in listed)
    put_table(("STREAM", *_HEAD), rows, right=_HEAD[3:])


def _of(settings: Settings, stream: str) -> StreamConsumers:
    return settings.open().stream(stream).consumers


def _named(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The configuration under the name of the command, wherever a file gave another."""
    return config | {key: name for key in ("durable_name", "name") if key in config}


def _agreed(question: str) -> bool:
    if not can_ask():
        raise UsageError(
            f"{question} Standard input is not a terminal; nothing was changed; repeat it with --yes"
        )
    if typer.confirm(question, err=True):
        return True
    say("nothing was changed")
    return False


def _from_options(
    filters: Sequence[str] | None, ack: str | None, deliver: str | None
) -> dict[str, Any]:
    wanted: dict[str, Any] = {"ack_policy": ack, "deliver_policy": deliver}
    if filters:
        wanted |= (
            {"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}
        )
    return {key: value for key, value in wanted.items() if value is not None}


def _from_file(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        document = parse_json(sys.stdin.read() if file == "-" else Path(file).read_text("utf-8"))
        return dict(document.get("config", document))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{file}: cannot be read as a consumer ({error}); give what `nats consumer info --json` prints"
        ) from error


def _put(settings: Settings, consumer: ConsumerInfo) -> None:
    if settings.format != "table":
        put_json(settings, consumer.as_json(), [consumer.as_json()])
        return
    lines = [f"{key}: {json.dumps(value)}" for key, value in consumer.config.items()]
    progress = [
        f"{head.lower()}: {cell}" for head, cell in zip(_HEAD[3:], _row(consumer)[3:], strict=True)
    ]
    put_report(
        [f"{consumer.stream} {consumer.name}", *(f"  {line}" for line in [*progress, *lines])]
    )


def _row(consumer: ConsumerInfo) -> tuple[str, ...]:
    config = consumer.config
    numbers = (
        consumer.delivered["stream_seq"],
        consumer.ack_floor["stream_seq"],
        consumer.num_ack_pending,
        consumer.num_redelivered,
        consumer.num_pending,
    )
    return (
        consumer.name,
        " ".join(consumer.filters or (">",)),
        config.get("ack_policy", "none"),
        *(f"{number:,}" for number in numbers),
    )
