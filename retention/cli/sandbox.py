"""Commands for getting started: init, validate."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.output import put_json, put_report
from retention.cli.settings import settings_of
from retention.config.discovery import CONFIG_NAME
from retention.core.units import HOUR
from retention.errors import UsageError

_STREAM = "ORDERS"
_SCHEMA = "retention.schema.json"
_SAMPLE = "sample.jsonl"
_DAYS = 10
_CUSTOMERS = ("ada", "bob", "cho", "dia", "eli")
_STEPS = ("placed", "paid", "shipped")
_CONFIG = f"""\
# yaml-language-server: $schema={_SCHEMA}
# What streams keep. An editor with YAML schemas explains every key; `retention validate` explains the rules.
warehouse: .                    # streams and the run history are kept beside this file

defaults:
  format: delta                 # or parquet
  segment_span: 1d              # a segment holds at most a day of messages
  grace: 7d                     # removed files stay that long, for `retention undo`
  guards:                       # what one `apply` may take at most; more is refused, unless you give --allow-large
    max_removed_share: {{limit: 50%, then: warn}}     # of the messages; a bare 50% refuses, this only says so
    max_removed_bytes: 10GiB
    min_kept_messages: 0        # messages that have to stay

streams:
  - name: {_STREAM}
    subjects: [orders.>]
    max_age: 7d                 # a message goes seven days after it was stored
    max_msgs_per_subject: 14    # or when 14 newer ones are on its subject
"""


@app.command()
def init(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The new or empty directory.")],
) -> None:
    """Create a sandbox with a sample stream."""
    settings = settings_of(ctx)
    _prepare(directory)
    from retention.api.warehouse import open_warehouse
    from retention.config.json_schema import json_schema

    (directory / _SCHEMA).write_text(json_schema(), encoding="utf-8")
    (directory / CONFIG_NAME).write_text(_CONFIG, encoding="utf-8")
    sample = directory / _SAMPLE
    sample.write_text("".join(f"{line}\n" for line in _sample(time.time_ns())), encoding="utf-8")
    warehouse = open_warehouse(directory / CONFIG_NAME, clock=time.time_ns)
    stored = warehouse.stream(_STREAM).publish(sample).appended.messages
    if settings.format == "table":
        put_report(_next_steps(directory, stored))
    else:
        made = {"directory": str(directory), "stream": _STREAM, "messages": stored}
        put_json(settings, made, [made])


def _prepare(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        entries = list(directory.iterdir())
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot become a sandbox ({error.strerror}); name another directory"
        ) from error
    if entries:
        raise UsageError(
            f"{directory}: is not empty; nothing was written; name a new or an empty directory"
        )


def _sample(now_ns: int) -> Iterator[str]:
    """One order event per hour, over the last days."""
    hours = _DAYS * 24
    for hour in range(hours):
        order, step = divmod(hour, len(_STEPS))
        subject = f"orders.{_CUSTOMERS[order % len(_CUSTOMERS)]}.{_STEPS[step]}"
        data = json.dumps({"order": order + 1, "step": _STEPS[step], "amount": 10 + order * 7 % 90})
        ts_ns = now_ns - (hours - hour) * HOUR
        yield json.dumps({"subject": subject, "data": data, "ts_ns": ts_ns})


def _next_steps(directory: Path, messages: int) -> list[str]:
    return [
        f"{directory}: stream {_STREAM} has {messages} messages of the last {_DAYS} days; its rules: {CONFIG_NAME}.",
        "Try next:",
        f"  cd {directory}",
        "  retention validate              what the rules mean",
        "  retention plan                  what would be removed, and why; changes nothing",
        f"  retention explain {_STREAM} 1      why message 1 is removed",
        "  retention apply                 remove it; asks first",
        "  retention state                 what streams hold",
        "  retention history               the runs; `retention undo RUN` restores what one removed",
    ]
