"""The command that copies new messages from live servers: sync."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from retention.cli.app import app
from retention.cli.arguments import Tags, complete_stream
from retention.cli.output import chosen_streams, finish, put_outcomes, say
from retention.cli.progress import progress
from retention.cli.settings import Settings, settings_of
from retention.core.units import parse_size
from retention.core.wording import counted
from retention.startup import return_memory

if TYPE_CHECKING:
    from retention.core.outcomes import Outcome
    from retention.ingest.sync.iggy.result import TopicSynced
    from retention.ingest.sync.result import Synced

Copied = TypeVar("Copied")

syncs = typer.Typer(help="Copy new messages from live servers.", no_args_is_help=True)
app.add_typer(syncs, name="sync")

Copies = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STREAM",
        show_default=False,
        autocompletion=complete_stream,
        help="Names or patterns. Default: all streams with sync.",
    ),
]
CopiedTopics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        show_default=False,
        autocompletion=complete_stream,
        help="Names or patterns. Default: all topics with sync.",
    ),
]


Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The server, or several with commas. Default: as configured."),
]
Context = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A context of the `nats` command, instead of a URL."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow/--once",
        help="Go on until a signal, each with a commit about each second; or end at the server's present end.",
    ),
]
BatchMessages = Annotated[int, typer.Option(metavar="N", help="The most messages of a commit.")]
BatchBytes = Annotated[
    str, typer.Option(metavar="SIZE", help="The most bytes of a commit, except for one message.")
]
MaxMissed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Accept that the server removed this many messages first. Default: as configured, else 0.",
    ),
]
WithConfig = Annotated[
    bool, typer.Option("--with-config", help="Keep the server's configuration beside the copy.")
]
WithConsumers = Annotated[
    bool,
    typer.Option(
        "--with-consumers", help="Bring the consumers, with the messages that they have settled."
    ),
]


@syncs.command("nats")
def nats(
    ctx: typer.Context,
    streams: Copies = None,
    tags: Tags = None,
    server: Server = None,
    context: Context = None,
    follow: Follow = False,
    batch_messages: BatchMessages = 50_000,
    batch_bytes: BatchBytes = "64MiB",
    max_missed: MaxMissed = None,
    with_config: WithConfig = False,
    with_consumers: WithConsumers = False,
) -> None:
    """Copy the new messages of JetStream streams: sequences, times, headers and payloads unchanged."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.ingest.sync.session import SyncOptions
    from retention.views.sync import sync_entry, sync_text

    options = SyncOptions(
        server=server,
        context=context,
        batch_messages=batch_messages,
        batch_bytes=parse_size(batch_bytes),
        max_missed=max_missed,
        with_config=with_config,
        with_consumers=with_consumers,
    )
    names = chosen_streams(warehouse, streams, tags, warehouse.synced())
    instant = warehouse.instant(None)
    if follow:
        outcomes = _followed(settings, names, partial(warehouse.follow_streams, options=options))
    else:
        outcomes = _synced(settings, names, partial(warehouse.sync, options=options))
    put_outcomes(settings, outcomes, instant, sync_text, sync_entry)
    finish(outcomes)


@syncs.command("iggy")
def iggy(
    ctx: typer.Context,
    topics: CopiedTopics = None,
    tags: Tags = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="HOST:PORT or iggy://USER:PASSWORD@HOST:PORT. Default: as configured.",
        ),
    ] = None,
    follow: Follow = False,
    batch_messages: BatchMessages = 50_000,
    batch_bytes: BatchBytes = "64MiB",
    max_missed: MaxMissed = None,
    with_config: WithConfig = False,
    with_consumers: Annotated[
        bool, typer.Option("--with-consumers", help="Bring the stored offsets of consumer groups.")
    ] = False,
    consumers: Annotated[
        list[str] | None,
        typer.Option(
            "--consumer",
            metavar="NAME",
            help="Bring this consumer's stored offsets too, as servers list groups only. Repeatable.",
        ),
    ] = None,
) -> None:
    """Copy the new messages of Iggy topics: offsets, ids, times, headers and payloads unchanged."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.ingest.sync.iggy.session import TopicSyncOptions
    from retention.views.sync import sync_entry, topic_sync_text

    options = TopicSyncOptions(
        server=server,
        batch_messages=batch_messages,
        batch_bytes=parse_size(batch_bytes),
        max_missed=max_missed,
        with_config=with_config,
        with_consumers=with_consumers,
        consumers=tuple(consumers or ()),
    )
    names = chosen_streams(warehouse, topics, tags, warehouse.synced_topics())
    instant = warehouse.instant(None)
    if follow:
        outcomes = _followed(settings, names, partial(warehouse.follow_topics, options=options))
    else:
        outcomes = _synced(settings, names, partial(warehouse.sync_topics, options=options))
    put_outcomes(settings, outcomes, instant, topic_sync_text, sync_entry)
    finish(outcomes)


def _synced(
    settings: Settings, names: list[str], sync: Callable[..., list[Outcome[Copied]]]
) -> list[Outcome[Copied]]:
    with progress(settings, "syncing", len(names), _came) as watch:
        return sync(names, watch=watch) if names else []


def _followed(
    settings: Settings, names: list[str], follow: Callable[..., list[Outcome[Copied]]]
) -> list[Outcome[Copied]]:
    """Follow streams, and tell the end of each as soon as it has ended: the others may go on for months."""
    return_memory()
    with progress(settings, "syncing", len(names), _came) as watch:

        def tell(outcome: Outcome[Copied]) -> None:
            watch(outcome)
            if outcome.error is not None and len(names) > 1 and settings.format != "jsonl":
                say(outcome.sentence)

        return follow(names, watch=tell) if names else []


def _came(synced: Synced | TopicSynced) -> str:
    return f"synced, copied {counted(synced.messages, 'message')}"
