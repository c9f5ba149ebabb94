"""JSON lines of all log records, each with its command, stream and run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from retention.core.labels import current_label
from retention.core.units import MILLISECOND, SECOND, format_instant
from retention.errors.printable import sentence, visible_json

ROOT = "retention"
"""The logger below which everything is logged."""


def event_line(
    command: str, time_ns: int, level: str, event: str, message: str, **about: object
) -> str:
    """An event as a line of JSON; unknown fields are omitted.

    Args:
        command: the running command or job.
        time_ns: when it happened, nanoseconds since the epoch.
        level: `info`, `warning` or `error`.
        event: its kind, such as `stream_done`.
        message: a sentence for people.
        about: `stream`, `run`, and numbers.
    """
    time = format_instant(time_ns // MILLISECOND * MILLISECOND)
    head = {"time": time, "level": level, "command": command, "event": event}
    known = {name: value for name, value in about.items() if value not in (None, "")}
    line = {**head, **known, "message": sentence(message)}
    return visible_json(json.dumps(line, ensure_ascii=False))


class _Lines(logging.Handler):
    """A handler that writes a line for each record; a record's attribute `event` may add fields."""

    def __init__(self, command: str, write: Callable[[str], None]) -> None:
        super().__init__()
        self._command = command
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line."""
        label = current_label()
        about = {"stream": label.stream, "run": label.run} | getattr(record, "about", {})
        event = about.pop("event", "log")
        time_ns = int(record.created * SECOND)
        level, message = record.levelname.lower(), record.getMessage()
        self._write(event_line(self._command, time_ns, level, event, message, **about))


@contextmanager
def logging_events(
    command: str, write: Callable[[str], None], least: int = logging.INFO
) -> Iterator[None]:
    """Write all log records of the block as JSON lines, including the end of each stream and the progress of long work.

    Args:
        command: the running command or job.
        write: receives each line.
        least: the level below which nothing is written.
    """
    logger, handler = logging.getLogger(ROOT), _Lines(command, write)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    handler.setLevel(least)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
