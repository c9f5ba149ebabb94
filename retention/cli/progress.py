"""Progress over streams: a bar on a terminal, one plain line a stream elsewhere, always on standard error."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from retention.cli.output import say
from retention.cli.settings import Settings
from retention.core.outcomes import Outcome, Watch
from retention.core.progress import LOGGER
from retention.errors.printable import sentence, visible


@contextmanager
def progress(
    settings: Settings, verb: str, total: int, done: Callable[[Any], str]
) -> Iterator[Watch]:
    """Show the progress of work on `total` streams.

    Args:
        settings: with `--debug`, tracebacks are shown, too.
        verb: the work, such as `planning`.
        total: the number of streams.
        done: makes the text for the value of a stream.
    """
    if not sys.stderr.isatty():
        with _showing_log(say):
            yield lambda outcome: say(_line(settings, outcome, done))
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=total)

        def watch(outcome: Outcome[Any]) -> None:
            if settings.debug and outcome.error is not None:
                bar.console.print(sentence(_traceback(outcome.error)), markup=False)
            bar.update(task, advance=1, description=f"{verb}: {visible(outcome.stream)} done")

        with _showing_log(lambda line: bar.console.print(sentence(line), markup=False)):
            yield watch


@contextmanager
def _showing_log(show: Callable[[str], None]) -> Iterator[None]:
    """Show the progress that long work within one stream logs."""
    logger, handler = logging.getLogger(LOGGER), logging.Handler()
    handler.emit = lambda record: show(record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _line(settings: Settings, outcome: Outcome[Any], done: Callable[[Any], str]) -> str:
    if outcome.error is None:
        return f"{outcome.stream}: {done(outcome.value)} ({outcome.seconds:.2f} s)"
    line = f"{outcome.stream}: failed ({outcome.seconds:.2f} s)"
    return f"{_traceback(outcome.error)}\n{line}" if settings.debug else line


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
