"""Commands on a key-value bucket: kv BUCKET add, create, put, get, update, delete, purge, ls, keys, history, watch."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retention.cli.app import app
from retention.cli.arguments import complete_bucket
from retention.cli.output import put_json, put_json_lines, put_lines, put_report, put_table, say
from retention.cli.removing import DryRun, Yes, remove
from retention.cli.settings import Settings, settings_of
from retention.core.bucket_names import stream_of
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.api.bucket import Bucket
    from retention.buckets.entry import Entry

buckets = typer.Typer(
    help="Read and write a key-value bucket.",
    no_args_is_help=True,
)
app.add_typer(buckets, name="kv")

Key = Annotated[str, typer.Argument(metavar="KEY", show_default=False)]
Value = Annotated[
    str,
    typer.Argument(metavar="VALUE|-", help="The value; - is standard input.", show_default=False),
]
Revision = Annotated[
    int | None,
    typer.Option(metavar="N", help="Require revision N (0: no value yet); else exit 7."),
]
Ttl = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Expire the value; needs a limit_marker_ttl."),
]
Filters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER", help="Only matching keys: * is one token, > the rest.", show_default=False
    ),
]
_BUCKET = "retention.bucket"
_HEAD = ("KEY", "REVISION", "CREATED", "OPERATION", "VALUE")


@buckets.callback()
def bucket(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="BUCKET", show_default=False, autocompletion=complete_bucket),
    ],
) -> None:
    """Read and write a key-value bucket."""
    stream_of(name)
    ctx.meta[_BUCKET] = name


@buckets.command()
def add(
    ctx: typer.Context,
    history: Annotated[
        int | None, typer.Option(metavar="N", help="The values kept of each key, 1 to 64.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The age at which values expire.")
    ] = None,
    limit_marker_ttl: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Keep markers of expired keys; allows TTLs of keys."),
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Refuse values beyond this size.")
    ] = None,
    max_value_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The maximum size of a value.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(metavar="BUCKET", help="The bucket to mirror.")
    ] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A description for people.")
    ] = None,
) -> None:
    """Add a bucket to the configuration. Its first value creates it."""
    from retention.config.add_bucket import add_bucket

    settings, name = settings_of(ctx), ctx.meta[_BUCKET]
    values: dict[str, Any] = {
        "name": name,
        "history": history,
        "ttl": ttl,
        "limit_marker_ttl": limit_marker_ttl,
        "max_bytes": max_bytes,
        "max_value_size": max_value_size,
        "mirror": mirror,
        "description": description,
    }
    given = {key: value for key, value in values.items() if value is not None}
    place = add_bucket(settings.config(), given)
    if settings.format == "table":
        done = "is listed already" if place is None else f"is listed in {place}"
        put_lines([f"bucket {name} {done}; its first value creates it"])
    else:
        document = {"bucket": name, "stream": stream_of(name), "added": place is not None}
        put_json(settings, document, [document])


@buckets.command()
def put(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Argument(metavar="KEY", show_default=False)] = None,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE|-", help="The value; - is standard input.", show_default=False
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help='JSON lines, one commit: {"key", "value" or "value_b64"}; - is standard input.',
        ),
    ] = None,
) -> None:
    """Set the value of a key. Prints its revision."""
    settings, held = settings_of(ctx), _held(ctx)
    if file is not None:
        if key is not None:
            raise UsageError("put: KEY and --from exclude each other; give one of them")
        _put_all(settings, held, file)
    elif key is None or value is None:
        raise UsageError("put: give KEY and VALUE (- reads it from standard input), or --from FILE")
    else:
        _put_revision(settings, held, key, held.put(key, _read(value)))


@buckets.command()
def create(ctx: typer.Context, key: Key, value: Value, ttl: Ttl = None) -> None:
    """Set the value of a key without one. Prints its revision."""
    held = _held(ctx)
    _put_revision(settings_of(ctx), held, key, held.create(key, _read(value), ttl))


@buckets.command()
def update(
    ctx: typer.Context,
    key: Key,
    value: Value,
    revision: Annotated[
        int, typer.Option(metavar="N", help="Require this revision, else exit 7; 0: no value yet.")
    ],
) -> None:
    """Set the value of a key at a given revision. Prints the new one."""
    held = _held(ctx)
    _put_revision(settings_of(ctx), held, key, held.update(key, _read(value), revision))


@buckets.command()
def get(
    ctx: typer.Context,
    key: Key,
    revision: Annotated[
        int | None, typer.Option(metavar="N", help="Print the value at this revision.")
    ] = None,
) -> None:
    """Print the value of a key."""
    settings = settings_of(ctx)
    entry = _held(ctx).get(key, revision)
    if settings.format != "table":
        put_json(settings, entry.as_json(), [entry.as_json()])
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(entry.value)
    if sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")


@buckets.command()
def delete(ctx: typer.Context, key: Key, revision: Revision = None) -> None:
    """Delete a key but keep its history. Prints the revision."""
    held = _held(ctx)
    _put_revision(settings_of(ctx), held, key, held.delete(key, revision))


@buckets.command()
def purge(ctx: typer.Context, key: Key, revision: Revision = None, ttl: Ttl = None) -> None:
    """Delete a key and its history. Prints the revision; `undo` restores the history."""
    held = _held(ctx)
    _put_revision(settings_of(ctx), held, key, held.purge(key, revision, ttl))


@buckets.command("ls")
def list_entries(ctx: typer.Context, filters: Filters = None) -> None:
    """List keys and their values."""
    _put_entries(settings_of(ctx), _held(ctx).entries(*(filters or ())))


@buckets.command()
def keys(ctx: typer.Context, filters: Filters = None) -> None:
    """List keys, one a line."""
    settings = settings_of(ctx)
    names = _held(ctx).keys(*(filters or ()))
    if settings.format == "table":
        put_lines(names)
    else:
        put_json(settings, names, names)


@buckets.command()
def history(ctx: typer.Context, key: Key) -> None:
    """List the kept values and deletions of a key, oldest first."""
    _put_entries(settings_of(ctx), _held(ctx).history(key))


@buckets.command()
def status(ctx: typer.Context) -> None:
    """Show the bucket's numbers and settings."""
    from retention.views.bucket import status_text

    settings, numbers = settings_of(ctx), _held(ctx).status()
    if settings.format == "table":
        put_report(status_text(numbers))
    else:
        put_json(settings, numbers.as_json(), [numbers.as_json()])


@buckets.command()
def watch(
    ctx: typer.Context,
    filters: Filters = None,
    history: Annotated[
        bool, typer.Option("--history", help="Print all kept values first.")
    ] = False,
    updates_only: Annotated[
        bool, typer.Option("--updates-only", help="Print only new values.")
    ] = False,
    ignore_deletes: Annotated[
        bool, typer.Option("--ignore-deletes", help="Leave out deletions and purges.")
    ] = False,
    resume_from: Annotated[
        int | None, typer.Option(metavar="N", help="Print from this revision on.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End after the present values.")] = False,
    poll: Annotated[
        str, typer.Option(metavar="DURATION", help="The time between two reads.")
    ] = "1s",
) -> None:
    """Print the last values of keys, then new ones."""
    settings = settings_of(ctx)
    watcher = _held(ctx).watch(
        *(filters or ()),
        include_history=history,
        updates_only=updates_only,
        ignore_deletes=ignore_deletes,
        resume_from=resume_from,
        poll=poll,
    )
    for entry in watcher:
        if entry is not None and settings.format == "table":
            put_lines([str(entry)])
        elif entry is not None:
            put_json_lines([json.dumps(entry.as_json(), ensure_ascii=False)])
        elif once:
            return
        else:
            sys.stdout.flush()


@buckets.command("purge-deletes")
def purge_deletes(
    ctx: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Remove deletions of this age; of younger ones only the history.",
        ),
    ] = "30m",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Remove deleted keys and their history. `undo` restores them within the grace period."""
    from retention.core.units import parse_duration
    from retention.rules.purge_deletes import purge_deletes_request

    request = purge_deletes_request(parse_duration(older_than))
    remove(settings_of(ctx), stream_of(ctx.meta[_BUCKET]), request, yes=yes, dry_run=dry_run)


def _held(ctx: typer.Context) -> Bucket:
    """The bucket; if it is unlisted and was never written to, a command with a value creates it."""
    name, settings = ctx.meta[_BUCKET], settings_of(ctx)
    warehouse = settings.open()
    stream = stream_of(name)
    if not warehouse.has(stream):
        if ctx.info_name not in {"put", "create"}:
            warehouse.log(stream)
        say(
            f"bucket {name} is not listed, so none of its values expire: `retention kv {name} add` lists it "
            "with a history and a TTL"
        )
    return warehouse.kv(name)


def _read(value: str) -> bytes | str:
    return sys.stdin.buffer.read() if value == "-" else value


def _put_revision(settings: Settings, held: Bucket, key: str, revision: int) -> None:
    if settings.format == "table":
        put_lines([str(revision)])
    else:
        document = {"bucket": held.name, "key": key, "revision": revision}
        put_json(settings, document, [document])


def _put_all(settings: Settings, held: Bucket, file: str) -> None:
    from retention.buckets.bulk import read_values

    source = sys.stdin.buffer if file == "-" else Path(file)
    first, last = held.put_all(read_values(source))
    if settings.format == "table":
        put_lines([f"{counted(last - first + 1, 'value')} put, revisions {first:,} to {last:,}"])
    else:
        document = {"bucket": held.name, "first_revision": first, "last_revision": last}
        put_json(settings, document, [document])


def _put_entries(settings: Settings, entries: Iterable[Entry]) -> None:
    if settings.format != "table":
        documents = [entry.as_json() for entry in entries]
        put_json(settings, documents, documents)
        return
    put_table(_HEAD, _rows(entries), right=("REVISION",), spare=("CREATED", "OPERATION"))


def _rows(entries: Iterable[Entry]) -> Iterator[tuple[str, ...]]:
    from retention.core.payload_preview import preview
    from retention.core.units import format_instant

    for entry in entries:
        created = format_instant(entry.created_ns)
        yield entry.key, str(entry.revision), created, entry.operation, preview(entry.value)
