"""Progress over streams, on standard error: bars with the time left on a terminal, or plain lines, or JSON events."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retention.cli.output import MOST_BLOCKS, put_event, say
from retention.cli.settings import Settings
from retention.core.event_log import logging_events
from retention.core.outcomes import Outcome, Watch
from retention.core.progress import EVERY_S, LOGGER, Pace
from retention.core.wording import counted
from retention.errors.printable import sentence, visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Done = Callable[[Any], str]
"""A function that makes the text for the value of a stream."""


@contextmanager
def progress(settings: Settings, verb: str, total: int, done: Done) -> Iterator[Watch]:
    """Show the progress of work on `total` streams.

    Args:
        settings: with `--debug`, tracebacks are shown as well; with `--format jsonl`, progress is reported as events.
        verb: the work, such as `planning`.
        total: the number of streams.
        done: makes the text for the value of a stream.
    """
    if settings.format == "jsonl":
        with logging_events(settings.command, put_event):
            yield _unwatched
    elif sys.stderr.isatty():
        with _bars(settings, verb, total) as watch:
            yield watch
    else:
        lines = _Lines(settings, verb, total, done)
        with _showing_log(lines.show_record):
            yield lines.show_few if total <= MOST_BLOCKS else lines.show_many


def _unwatched(_: Outcome[Any]) -> None:
    """Ignore an outcome, which is already logged."""


class _Lines:
    """Plain lines: one per stream; for many streams one every few seconds, and one for each that fails."""

    def __init__(self, settings: Settings, verb: str, total: int, done: Done) -> None:
        self._settings = settings
        self._verb = verb
        self._total = total
        self._done = done
        self._count = 0
        self._shown_at = time.monotonic()
        self._pace = Pace(time.monotonic)
        self._pace.left(verb, 0, total)

    def show_few(self, outcome: Outcome[Any]) -> None:
        if outcome.error is None:
            say(f"{outcome.stream}: {self._done(outcome.value)} ({outcome.seconds:.2f} s)")
        else:
            self._show_failure(outcome, outcome.error)

    def show_many(self, outcome: Outcome[Any]) -> None:
        self._count += 1
        if outcome.error is not None:
            self._show_failure(outcome, outcome.error)
        now = time.monotonic()
        if now - self._shown_at >= EVERY_S or self._count == self._total:
            self._shown_at = now
            left = self._pace.left(self._verb, self._count, self._total)
            say(f"{self._verb}: {self._count:,} of {counted(self._total, 'stream')}{left}")

    def show_record(self, record: logging.LogRecord) -> None:
        about = getattr(record, "about", {})
        left = self._pace.left(about["doing"], about["done"], about["total"]) if about else ""
        say(f"{record.getMessage()}{left}")

    def _show_failure(self, outcome: Outcome[Any], error: Exception) -> None:
        if self._settings.debug:
            say(_traceback(error))
        say(f"{outcome.stream}: failed ({outcome.seconds:.2f} s)")


@contextmanager
def _bars(settings: Settings, verb: str, total: int) -> Iterator[Watch]:
    """A bar for the streams, and one below it for each kind of long work on the current one."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        streams = bar.add_task(verb, total=total)
        inner = _InnerBars(bar)

        def watch(outcome: Outcome[Any]) -> None:
            if settings.debug and outcome.error is not None:
                bar.console.print(sentence(_traceback(outcome.error)), markup=False)
            inner.clear()
            bar.update(streams, advance=1, description=f"{verb}: {visible(outcome.stream)} done")

        with _showing_log(inner.show_record):
            yield watch


class _InnerBars:
    """Bars for long work within a stream."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def show_record(self, record: logging.LogRecord) -> None:
        about = getattr(record, "about", None)
        if about is None:
            self._bar.console.print(sentence(record.getMessage()), markup=False)
            return
        doing = about["doing"]
        if doing not in self._tasks:
            self._tasks[doing] = self._bar.add_task(sentence(doing))
        self._bar.update(self._tasks[doing], completed=about["done"], total=about["total"])

    def clear(self) -> None:
        for task in self._tasks.values():
            self._bar.remove_task(task)
        self._tasks.clear()


@contextmanager
def _showing_log(show: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Show the progress that long work on one stream logs."""
    logger, handler = logging.getLogger(LOGGER), logging.Handler()
    handler.emit = show  # type: ignore[method-assign, assignment]
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
