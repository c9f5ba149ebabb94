"""Job: copy new messages from live servers."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from retention.core.units import parse_size
from retention.core.wording import counted
from retention.errors import UsageError
from retention.errors.printable import visible_lines
from retention.history.report import document
from retention.jobs.arguments import add_selection, add_wait, without_instant
from retention.jobs.running import JobResult, JobRun, job
from retention.startup import return_memory
from retention.views.sync import sync_entry

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.core.outcomes import Outcome
    from retention.ingest.sync.iggy.result import TopicSynced
    from retention.ingest.sync.result import Synced


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--server", metavar="URL", help="the server (default: as configured)")
    place.add_argument("--context", metavar="NAME", help="a context of the `nats` command")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--once", action="store_true", help="end at the server's present end (default)"
    )
    mode.add_argument("--follow", action="store_true", help="go on until a signal")
    parser.add_argument("--batch-messages", type=int, default=50_000, metavar="N")
    parser.add_argument("--batch-bytes", type=parse_size, default="64MiB", metavar="SIZE")
    parser.add_argument(
        "--max-missed",
        type=int,
        metavar="N",
        help="accept this many sequences that the server removed first (default: as configured)",
    )
    parser.add_argument(
        "--with-config", action="store_true", help="keep the server's configuration beside ours"
    )
    parser.add_argument(
        "--with-consumers", action="store_true", help="bring what consumers have settled"
    )
    parser.add_argument(
        "--consumer",
        action="append",
        default=[],
        metavar="NAME",
        help="bring this consumer's offsets in topics too (repeatable)",
    )
    parser.add_argument(
        "--configured",
        action="store_true",
        help="skip named streams without `sync` in the configuration",
    )
    add_selection(parser)


@job(
    "sync",
    "Copy new messages from live servers.",
    add_wait,
    _add_arguments,
    engine=None,
    refusal=without_instant("messages keep the times of their server"),
)
def main(run: JobRun) -> JobResult:
    """Copy the new messages of streams and topics with `sync`."""
    arguments = run.arguments
    warehouse = run.open_with_streams()
    copies = [*warehouse.synced(), *warehouse.synced_topics()]
    names = warehouse.chosen(arguments.stream, arguments.tag, copies)
    if arguments.configured:
        names = [name for name in names if name in copies or not warehouse.has(name)]
    if arguments.follow:
        return_memory()
    topics = [name for name in names if name in warehouse.topics()]
    if arguments.follow and 0 < len(topics) < len(names):
        raise UsageError(
            f"--follow keeps streams or topics in step, and {counted(len(topics), 'topic')} and "
            f"{counted(len(names) - len(topics), 'stream')} are meant; nothing was copied; run one job for the topics "
            "and one for the streams (--stream NAME …)"
        )
    outcomes: list[Outcome[Any]] = [
        *_synced(warehouse, [name for name in names if name not in topics], arguments),
        *_synced_topics(warehouse, topics, arguments),
    ]
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    messages = counted(sum(synced.messages for synced in done), "message")
    size = counted(sum(synced.bytes for synced in done), "byte")
    report = document(run.started_ns, [sync_entry(outcome) for outcome in outcomes])
    text = run.summary(outcomes, f"copied {messages} ({size})")
    return JobResult(report, text, outcomes, warehouse=warehouse)


def _synced(
    warehouse: Warehouse, names: list[str], arguments: argparse.Namespace
) -> list[Outcome[Synced]]:
    from retention.ingest.sync.session import SyncOptions

    options = SyncOptions(context=arguments.context, **_shared(arguments))
    if arguments.follow:
        tell = partial(_tell, arguments, len(names))
        return warehouse.follow_streams(names, options, tell) if names else []
    return warehouse.sync(names, options)


def _synced_topics(
    warehouse: Warehouse, names: list[str], arguments: argparse.Namespace
) -> list[Outcome[TopicSynced]]:
    from retention.ingest.sync.iggy.session import TopicSyncOptions

    options = TopicSyncOptions(consumers=tuple(arguments.consumer), **_shared(arguments))
    if arguments.follow:
        tell = partial(_tell, arguments, len(names))
        return warehouse.follow_topics(names, options, tell) if names else []
    return warehouse.sync_topics(names, options)


def _tell(arguments: argparse.Namespace, count: int, outcome: Outcome[Any]) -> None:
    """Print the error of one of several streams as soon as it has ended: the others may go on for months."""
    if outcome.error is not None and count > 1 and arguments.log_format == "text":
        print(f"sync: {visible_lines(outcome.sentence)}", file=sys.stderr)


def _shared(arguments: argparse.Namespace) -> dict[str, Any]:
    names = (
        *("server", "batch_messages", "batch_bytes", "max_missed"),
        *("with_config", "with_consumers"),
    )
    return {name: getattr(arguments, name) for name in names}


if __name__ == "__main__":
    raise SystemExit(main())
